from functools import partial

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.transforms._edges import check_attr_name, check_memory, read_edges
from pyg_textgraph.transforms.pairs import PairLayout


@functional_transform("add_spd")
class AddSPD(BaseTransform):
    r"""Adds shortest-path distances between nodes (functional name: :obj:`add_spd`).

    The distance from a node to another is the smallest number of edges on a path between them, as in the spatial
    encoding of `Ying et al., 2021 <https://arxiv.org/abs/2106.05234>`_. Longer ones than :obj:`max_dist` are stored
    as :obj:`max_dist`, pairs without a path as −1. Weights, self-loops and parallel edges do not matter.

    Args:
        max_dist: The largest distance told apart.
        directed: Whether paths follow the direction of the edges.
        k_hop: If given, only pairs of different nodes within this many hops (directions ignored) are stored, and
            ``data.pair_index`` lists them.
        attr_name: Where the result goes. Under another name it is not dropped by what makes it wrong (``subgraph``).

    Shapes:
        - **data[attr_name]** (N·N), int16, row-major over (from, to); with ``k_hop`` (P)
        - **data.pair_index** (2, P), only with ``k_hop``

    Raises:
        ValueError: If ``max_dist`` is not in 1 … 32767, or ``data.pair_index`` belongs to another ``k_hop``.
    """

    def __init__(
        self, max_dist: int = 8, directed: bool = True, k_hop: int | None = None, attr_name: str = "spd"
    ) -> None:
        if not 1 <= max_dist <= np.iinfo(np.int16).max:
            raise ValueError(f"AddSPD: max_dist must be between 1 and 32767, got {max_dist}")
        self.max_dist = max_dist
        self.directed = directed
        self.k_hop = k_hop
        self.attr_name = check_attr_name(attr_name, "AddSPD")

    def forward(self, data: Data) -> Data:
        edges = read_edges(data, "AddSPD")
        if self.k_hop is None:
            check_memory(2 * edges.num_nodes**2, "AddSPD", edges.num_nodes, "give k_hop, or sample egos first")
        layout = PairLayout(data, edges, self.k_hop, "AddSPD")
        adjacency = edges.adjacency()
        limit = np.inf
        if self.k_hop is not None and not (self.directed and (adjacency - adjacency.T).nnz):
            limit = self.k_hop  # without directions a listed pair is at most k_hop apart: the search may stop there
        search = partial(dijkstra, adjacency, directed=self.directed, unweighted=True, limit=limit)
        out = np.empty(layout.shape, dtype=np.int16)
        for rows, part, pick in layout:
            hops = search(indices=np.arange(rows.start, rows.stop))[pick]  # of [rows, N]; inf = no path
            out[part] = np.where(np.isinf(hops), -1, np.minimum(hops, self.max_dist))
        data[self.attr_name] = torch.from_numpy(out.reshape(-1)).to(edges.device)
        return data

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.max_dist}, directed={self.directed}, k_hop={self.k_hop})"

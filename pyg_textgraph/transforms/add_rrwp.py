from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.transforms._edges import check_attr_name, check_memory, read_edges
from pyg_textgraph.transforms.pairs import PairLayout


@functional_transform("add_rrwp")
class AddRRWP(BaseTransform):
    r"""Adds relative random-walk probabilities (functional name: :obj:`add_rrwp`).

    For every pair of nodes, the probabilities that a walk from the first stands at the second after
    0, 1, …, K−1 steps, :math:`[\mathbf{I}, \mathbf{M}, \dots, \mathbf{M}^{K-1}]_{uv}` with
    :math:`\mathbf{M} = \mathbf{D}^{-1}\mathbf{A}` (`Ma et al., 2023 <https://arxiv.org/abs/2305.17589>`_, Eq. 2).
    Nodes without out-edges, or with zero weight in all of them, get a self-loop, so every row sums to one.

    Args:
        walk_length: Number of steps :math:`K`, the zeroth included.
        weighted: Whether a step is as likely as its edge's weight: ``data.edge_weight``, or else ``data.edge_attr``
            with one non-negative number per edge, or else the values of ``data.adj_t``. Parallel edges add up.
            Otherwise they count once.
        k_hop: If given, only pairs of different nodes within this many hops (directions ignored) are stored, and
            ``data.pair_index`` lists them. Walks may leave that range and come back.
        attr_name: Where the result goes. Under another name it is not dropped by what makes it wrong (``subgraph``).

    Shapes:
        - **data[attr_name]** (N·N, K), float32, row-major over (from, to); with ``k_hop`` (P, K)
        - **data.pair_index** (2, P), only with ``k_hop``

    Raises:
        ValueError: If ``walk_length`` is below 1, a weight is missing, negative or not finite, or ``data.pair_index``
            belongs to another ``k_hop``.
    """

    def __init__(
        self, walk_length: int = 16, weighted: bool = False, k_hop: int | None = None, attr_name: str = "rrwp"
    ) -> None:
        if walk_length < 1:
            raise ValueError(f"AddRRWP: walk_length must be at least 1, got {walk_length}")
        self.walk_length = walk_length
        self.weighted = weighted
        self.k_hop = k_hop
        self.attr_name = check_attr_name(attr_name, "AddRRWP")

    def forward(self, data: Data) -> Data:
        edges = read_edges(data, "AddRRWP", weighted=self.weighted)
        if self.k_hop is None:
            size = 4 * self.walk_length * edges.num_nodes**2
            check_memory(size, "AddRRWP", edges.num_nodes, "give k_hop, or sample egos first")
        layout = PairLayout(data, edges, self.k_hop, "AddRRWP")
        step = transition_matrix(edges.adjacency()).T  # [N, N], to ← from
        out = np.empty((*layout.shape, self.walk_length), dtype=np.float32)
        for rows, part, pick in layout:
            walk = np.eye(edges.num_nodes, rows.stop - rows.start, k=-rows.start)  # [N, rows], float64
            for length in range(self.walk_length):
                walk = step @ walk if length > 0 else walk
                out[part][..., length] = walk.T[pick]
        data[self.attr_name] = torch.from_numpy(out.reshape(-1, self.walk_length)).to(edges.device)
        return data

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.walk_length}, weighted={self.weighted}, k_hop={self.k_hop})"


def transition_matrix(adjacency: csr_array[Any, Any]) -> csr_array[Any, Any]:
    r"""Probabilities :math:`\mathbf{M} = \mathbf{D}^{-1}\mathbf{A}` of one step, [N, N]; see :class:`AddRRWP`."""
    degree = adjacency.sum(axis=1)
    positive = adjacency.data > 0
    source = np.repeat(np.arange(len(degree)), np.diff(adjacency.indptr))[positive]
    target, weight = adjacency.indices[positive], adjacency.data[positive]
    sink = np.flatnonzero(degree == 0)
    probability = np.concatenate([weight / degree[source], np.ones(len(sink))])
    index = np.concatenate([source, sink]), np.concatenate([target, sink])
    return csr_array((probability, index), shape=adjacency.shape)

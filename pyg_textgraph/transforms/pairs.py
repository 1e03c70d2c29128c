from collections.abc import Iterator
from types import EllipsisType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data.checks import checked_edges
from pyg_textgraph.transforms._edges import Edges

BLOCK_ELEMENTS = 1 << 20  # of one [rows, N] float64 matrix: 8 MiB, about a core's cache


class PairBlock(NamedTuple):
    """Where the features of the pairs from some consecutive nodes come from and go to."""

    rows: slice  # the nodes the pairs start from
    part: slice  # of the output's first axis
    pick: EllipsisType | tuple[NDArray[np.int64], NDArray[np.int64]]  # out of a [rows, N] matrix


class PairLayout:
    """The pairs of one graph that are stored, and the same pairs block by block.

    Dense (``k_hop=None``): all of them, ``shape`` = (N, N). Listed: those of :func:`k_hop_pairs`, ``shape`` = (P,), in
    the order of ``data.pair_index``, which is set here.

    Raises:
        ValueError: If ``data.pair_index`` is there already and belongs to another ``k_hop``.
    """

    def __init__(self, data: Data, edges: Edges, k_hop: int | None, owner: str) -> None:
        self.num_nodes = edges.num_nodes
        self.index: NDArray[np.int64] | None = None  # [2, P]
        self.shape: tuple[int, ...] = (edges.num_nodes, edges.num_nodes)
        pairs: Tensor | None = None
        if k_hop is not None:
            pairs = k_hop_pairs(torch.from_numpy(edges.index), edges.num_nodes, k_hop)
            self.index = pairs.numpy()
            self.shape = self.index.shape[1:]
        if "pair_index" in data and (pairs is None or not torch.equal(data.pair_index.cpu(), pairs)):
            raise ValueError(f"{owner}: 'pair_index' is not that of k_hop={k_hop}; give all transforms the same k_hop")
        if pairs is not None:
            data.pair_index = pairs.to(edges.device)

    def __iter__(self) -> Iterator[PairBlock]:
        size = max(1, BLOCK_ELEMENTS // max(1, self.num_nodes))
        for start in range(0, self.num_nodes, size):
            rows = slice(start, min(start + size, self.num_nodes))
            if self.index is None:
                yield PairBlock(rows, rows, ...)
            else:
                source, target = self.index
                part = slice(*np.searchsorted(source, (rows.start, rows.stop)))
                yield PairBlock(rows, part, (source[part] - rows.start, target[part]))


def k_hop_pairs(edge_index: Tensor, num_nodes: int, k: int, directed: bool = False) -> Tensor:
    """All ordered pairs of different nodes at most ``k`` hops apart.

    Time and memory follow the number of pairs, not the square of the number of nodes.

    Args:
        edge_index: The edges; self-loops and parallel edges change nothing.
        num_nodes: The number of nodes N.
        k: The largest number of hops.
        directed: Whether hops follow the edges, from the first node to the second; by default they go either way.

    Shapes:
        - **edge_index** (2, E)
        - **returns** (2, P), row 0 = from, row 1 = to, sorted by from, then to

    Raises:
        ValueError: If ``k`` is negative.
    """
    if k < 0:
        raise ValueError(f"k_hop_pairs: k must not be negative, got {k}")
    source, target = checked_edges(edge_index, num_nodes, "k_hop_pairs")
    shape = (num_nodes, num_nodes)
    edges = csr_array((np.ones(len(source), dtype=bool), (source, target)), shape=shape)
    within = eye_array(num_nodes, dtype=bool, format="csr")
    step = (edges + within if directed else edges + edges.T + within).tocsr()
    for _ in range(k):
        within = within @ step  # [N, N] bool: products are "or" of "and", counts cannot overflow
    within.sort_indices()
    pairs = np.stack(within.nonzero()).astype(np.int64)
    return torch.from_numpy(pairs[:, pairs[0] != pairs[1]]).to(edge_index.device)

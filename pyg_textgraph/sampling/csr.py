"""The two views of one graph that ego sampling reads: whom a node touches, and which edges it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pyg_textgraph.data.edge_checks import checked_edges

Ints = NDArray[np.int64]
Array = NDArray[Any]  # of int32 where it fits, int64 otherwise


@dataclass(frozen=True, eq=False)
class CSRGraph:
    """A directed graph prepared for sampling.

    Hops go along the *neighbours*: distinct nodes at the other end of an edge of either direction, the node itself
    left out. Induced edges come from the *kept* edges: each edge is kept by the end with fewer neighbours, so the list
    of a hub is short and every edge between two nodes is met exactly once.

    Shapes:
        - **neighbor_ptr**, **kept_ptr** (N + 1,)
        - **neighbor** (sum of degrees,) ascending per node
        - **kept** (E,) edge ids, ascending per node; **kept_end** (E,) the edge's other end; **kept_out** (E,) whether
          the edge leaves the node that keeps it
        - **reach** (N,) sum of the neighbours' degrees, an estimate of what two hops cost
    """

    neighbor_ptr: Ints
    neighbor: Array
    kept_ptr: Ints
    kept: Array
    kept_end: Array
    kept_out: NDArray[np.bool_]
    reach: Ints

    @classmethod
    def from_edge_index(cls, edge_index: Ints, num_nodes: int) -> CSRGraph:
        """Sorts the edges; close to linear in their number, done once per graph.

        Shapes:
            - **edge_index** (2, E), row 0 = from, row 1 = to

        Raises:
            ValueError: If an edge holds a node out of range.
        """
        source, end = checked_edges(edge_index, num_nodes, "CSRGraph")
        adjacency = sp.coo_array((np.ones(source.size, np.bool_), (source, end)), shape=(num_nodes, num_nodes)).tocsr()
        adjacency = (adjacency + adjacency.T).tocoo()
        loop = adjacency.row == adjacency.col
        neighbor = adjacency.col[~loop]
        degree = np.bincount(adjacency.row[~loop], minlength=num_nodes)
        neighbor_ptr = pointer(degree)

        out = degree[source] <= degree[end]
        keeper = np.where(out, source, end)
        kept = np.argsort(keeper, kind="stable")
        reach = np.diff(pointer(degree[neighbor])[neighbor_ptr])
        return cls(
            neighbor_ptr,
            neighbor,
            pointer(np.bincount(keeper, minlength=num_nodes)),
            kept.astype(np.int32 if kept.size < 2**31 else np.int64),
            np.where(out, end, source)[kept].astype(neighbor.dtype),
            out[kept],
            reach,
        )

    @property
    def num_nodes(self) -> int:
        return self.neighbor_ptr.size - 1


def pointer(count: Ints) -> Ints:
    """Where runs of the given lengths start, and the end of the last: (n,) -> (n + 1,)."""
    out = np.zeros(count.size + 1, np.int64)
    np.cumsum(count, out=out[1:])
    return out


def runs(ptr: Ints, node: Array) -> tuple[Ints, Ints]:
    """The places ``ptr[v]:ptr[v + 1]`` of every node in turn, and how many each has.

    Shapes:
        - **node** (n,)
        - **returns** (total,) and (n,)
    """
    start = ptr[node]
    count = ptr[node + 1] - start
    place = np.repeat(start - pointer(count)[:-1], count)
    place += np.arange(place.size)
    return place, count

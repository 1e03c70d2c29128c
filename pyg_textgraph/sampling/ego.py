"""Ego sampling: the nearest nodes of many targets at once, and the edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyg_textgraph.sampling.csr import Array, CSRGraph, Ints, pointer, runs

Keys = NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15
_LAST = 2**64 - 1
_BUDGET = 1 << 16  # neighbours looked at together: the work arrays stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Egos:
    """Disjoint ego graphs, one after the other; in each the target first, then by hop, then by priority.

    Shapes:
        - **node** (S,) ids in the graph sampled from; **ego** (S,) ascending
        - **row**, **col** (M,) induced directed edges as places in **node**
        - **edge** (M,) their ids, ascending within an ego
    """

    node: Ints
    ego: Ints
    row: Ints
    col: Ints
    edge: Ints

    def split(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Every ego's nodes (n,), edges (2, m) as places among them, and edge ids (m,)."""
        num_egos = int(self.ego[-1]) + 1 if self.ego.size else 0
        ptr = pointer(np.bincount(self.ego, minlength=num_egos))
        edge_ptr = pointer(np.bincount(self.ego[self.row], minlength=num_egos))
        edge_index = np.stack([self.row, self.col])
        for start, end, first, last in zip(ptr[:-1], ptr[1:], edge_ptr[:-1], edge_ptr[1:], strict=True):
            yield self.node[start:end], edge_index[:, first:last] - start, self.edge[first:last]


def sample_egos(
    graph: CSRGraph, targets: Ints, num_neighbors: int, num_hops: int, seed: int = 0, epoch: int = 0
) -> Egos:
    r"""Samples the ego graph of every target.

    An ego is the target and the ``num_neighbors`` other nodes that come first by (hop, priority) among those within
    ``num_hops`` undirected hops. The priority of node :math:`v` for target :math:`t` is the :math:`v`-th number of a
    splitmix64 stream keyed by (seed, epoch, :math:`t`). So what is taken from the last hop is uniform without
    replacement, fewer neighbours are a prefix of more, and an ego depends on nothing it is sampled together with.

    Shapes:
        - **targets** (B,); a node may occur more than once

    Raises:
        ValueError: If a target is out of range.
    """
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise ValueError(f"sample_egos: 'targets' is {targets.dtype} of shape {targets.shape}, expected integers (B,)")
    if num_neighbors < 0 or num_hops < 0:
        raise ValueError(f"sample_egos: got {num_neighbors} neighbours and {num_hops} hops, expected 0 or more")
    num_neighbors = min(num_neighbors, graph.num_nodes)  # more would overflow, and there are no more
    outside = (targets < 0) | (targets >= graph.num_nodes)
    if outside.any():
        bad, size = targets[outside][0], graph.num_nodes
        raise ValueError(f"sample_egos: 'targets' holds {bad} but the graph has {size} nodes")
    work = np.cumsum(graph.reach[targets] + 1) // _BUDGET
    groups = np.split(targets, np.flatnonzero(np.diff(work)) + 1)
    out, places, egos = [], 0, 0
    for group in groups:
        ego, node = _nearest(graph, group, stream_keys(seed, epoch, group), num_neighbors, num_hops)
        row, col, edge = _induced(graph, ego, node, group.size)
        out.append((node, ego + egos, row + places, col + places, edge))
        places, egos = places + node.size, egos + group.size
    return Egos(*(np.concatenate(x) for x in zip(*out, strict=True)))


def splitmix64(key: Keys, index: Keys) -> Keys:
    """The ``index``-th number of the stream that starts at ``key``; for one key, no two indices share a number."""
    x = index + np.uint64(1)
    x *= np.uint64(_GOLDEN)
    x += key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def stream_keys(seed: int, epoch: int, targets: Ints) -> Keys:
    """The key of every target's stream of priorities."""
    run = splitmix64(np.array([seed & _LAST], np.uint64), np.array([epoch & _LAST], np.uint64))
    return splitmix64(run, targets.astype(np.uint64))


def _nearest(graph: CSRGraph, targets: Ints, key: Keys, num_neighbors: int, num_hops: int) -> tuple[Ints, Ints]:
    """The ego of each node taken, and the node, sorted by (ego, hop, priority)."""
    ego, node = np.arange(targets.size), targets
    rings = [(ego, node)]
    room = np.full(targets.size, num_neighbors)
    for _ in range(num_hops):
        grows = room[ego] > 0
        ego, node = ego[grows], node[grows]
        if ego.size == 0:
            break
        place, count = runs(graph.neighbor_ptr, node)
        seen = np.concatenate([e * graph.num_nodes + v for e, v in rings])
        ego, node = _take(np.repeat(ego, count), graph.neighbor[place], key, room, seen, graph.num_nodes)
        room -= np.bincount(ego, minlength=room.size)
        rings.append((ego, node))
    ego, node = (np.concatenate(x) for x in zip(*rings, strict=True))
    order = np.argsort(ego, kind="stable")
    return ego[order], node[order]


def _take(ego: Ints, node: Array, key: Keys, room: Ints, seen: Ints, num_nodes: int) -> tuple[Ints, Ints]:
    """Of the candidates (with repeats), the unseen ones of lowest priority, at most ``room`` per ego.

    Shapes:
        - **ego**, **node** (C,); **key**, **room** (B,); **seen** (S,) as ego · num_nodes + node
        - **returns** ego and node, sorted by (ego, priority)
    """
    priority = splitmix64(key[ego], node.astype(np.uint64))
    # sort only the lowest numbers; an ego whose share proves too small to fill its room tries a larger one
    share = (2 * room + 32) / np.maximum(np.bincount(ego, minlength=room.size), 1)
    while True:
        limit = (np.minimum(share, 0.5) * 2.0**64).astype(np.uint64)
        limit[share >= 0.5] = _LAST
        some = np.flatnonzero(priority <= limit[ego])
        some = some[np.lexsort((priority[some], ego[some]))]
        e, v = ego[some], node[some].astype(np.int64)
        new = _find(e * num_nodes + v, seen) < 0
        new[1:] &= (v[1:] != v[:-1]) | (e[1:] != e[:-1])  # repeats have one priority, so they stand together
        e, v = e[new], v[new]
        size = np.bincount(e, minlength=room.size)
        short = (size < room) & (share < 0.5)
        if not short.any():
            rank = np.arange(e.size) - pointer(size)[e]
            fits = rank < room[e]
            return e[fits], v[fits]
        share[short] *= 8


def _induced(graph: CSRGraph, ego: Ints, node: Ints, num_egos: int) -> tuple[Ints, Ints, Ints]:
    """The edges within each ego: row and column as places in ``node``, and edge ids."""
    place, count = runs(graph.kept_ptr, node)
    keeper = np.repeat(np.arange(node.size), count)
    end = graph.kept_end[place]
    # a table of low bits rules out nearly all outsiders before the exact search
    bits = (64 * node.size // max(num_egos, 1)).bit_length()
    table = np.zeros(num_egos << bits, np.bool_)
    low = (1 << bits) - 1
    table[(ego << bits) | (node & low)] = True
    maybe = np.flatnonzero(table[(ego << bits)[keeper] | (end & low)])
    keeper, place = keeper[maybe], place[maybe]
    other = _find(ego[keeper] * graph.num_nodes + end[maybe], ego * graph.num_nodes + node)
    inside = other >= 0
    keeper, other, place = keeper[inside], other[inside], place[inside]
    out, edge = graph.kept_out[place], graph.kept[place].astype(np.int64)
    order = np.lexsort((edge, ego[keeper]))
    row, col = np.where(out, keeper, other), np.where(out, other, keeper)
    return row[order], col[order], edge[order]


def _find(query: Ints, keys: Ints) -> Ints:
    """Where each query stands in ``keys``, which holds no number twice; −1 if it does not."""
    order = np.argsort(keys)
    place = order[np.minimum(np.searchsorted(keys, query, sorter=order), keys.size - 1)]
    return np.where(keys[place] == query, place, -1)

"""Ego graphs with at most so many neighbours per node and hop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyg_textgraph.sampling.csr import CSRGraph, Ints


def sample_fanout(graph: CSRGraph, ego: int, fanouts: Sequence[int], seed: int = 0) -> tuple[Ints, Ints]:
    """An ego and its surroundings: from every node reached in one hop, up to so many neighbours in the next.

    Depends on (seed, ego) only. Neighbours are drawn without replacement, and only drawn edges are kept: a node has at
    most its fan-out of neighbours and those that drew it.

    Args:
        graph: The big graph; edge directions are ignored.
        ego: The node in the middle.
        fanouts: How many neighbours per node in each hop.
        seed: Of the draws.

    Shapes:
        - **returns** node ids (n,), the ego first, then by hop; and undirected edges (2, m), once each, as places among
          them

    Raises:
        ValueError: If the ego is out of range.
    """
    if not 0 <= ego < graph.num_nodes:
        raise ValueError(f"sample_fanout: 'ego' is {ego} but the graph has {graph.num_nodes} nodes")
    rng = np.random.default_rng([seed, ego])
    place = {ego: 0}
    edges: dict[tuple[int, int], None] = {}
    frontier = [ego]
    for fanout in fanouts:
        reached = []
        for node in frontier:
            around = graph.neighbor[graph.neighbor_ptr[node] : graph.neighbor_ptr[node + 1]]
            if around.size > fanout:
                around = np.sort(rng.choice(around, fanout, replace=False))
            for other in around.tolist():
                if other not in place:
                    place[other] = len(place)
                    reached.append(other)
                a, b = place[node], place[other]
                edges[min(a, b), max(a, b)] = None
        frontier = reached
    return np.array([*place], np.int64), np.array([*edges], np.int64).reshape(-1, 2).T

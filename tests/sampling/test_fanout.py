from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pyg_textgraph.sampling import CSRGraph, sample_fanout


def csr(graph: nx.Graph) -> CSRGraph:
    return CSRGraph.from_edge_index(np.array([*graph.edges]).T, len(graph))


@pytest.mark.parametrize("ego", range(5))
def test_everything_within_two_hops_where_the_fanout_is_large(ego: int) -> None:
    graph = nx.gnp_random_graph(30, 0.08, seed=1)
    node, edge = sample_fanout(csr(graph), ego, (30, 30))
    hops = nx.single_source_shortest_path_length(graph, ego, cutoff=2)
    assert sorted(node.tolist()) == sorted(hops)
    assert [hops[v] for v in node.tolist()] == sorted(hops.values())
    expected = {frozenset(e) for e in graph.edges if min(hops.get(e[0], 9), hops.get(e[1], 9)) < 2}
    assert {frozenset(e) for e in node[edge].T.tolist()} == expected
    assert edge.shape[1] == len(expected)


def test_no_more_than_the_fanout() -> None:
    node, edge = sample_fanout(csr(nx.complete_graph(40)), 3, (4, 2))
    assert node[0] == 3
    assert int((edge == 0).sum()) <= 4 + 4  # drawn by the ego, or drew it
    assert edge.shape[1] <= 4 + 4 * 2


def test_depends_on_seed_and_ego_only() -> None:
    graph = csr(nx.complete_graph(40))
    first = sample_fanout(graph, 3, (4, 2), seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, sample_fanout(graph, 3, (4, 2), seed=1), strict=True))
    assert not np.array_equal(first[0], sample_fanout(graph, 3, (4, 2), seed=2)[0])
    with pytest.raises(ValueError, match="'ego' is 40"):
        sample_fanout(graph, 40, (4,))


def test_a_node_without_neighbours() -> None:
    graph = nx.empty_graph(3)
    graph.add_edge(0, 1)
    node, edge = sample_fanout(csr(graph), 2, (4, 4))
    assert node.tolist() == [2]
    assert edge.shape == (2, 0)

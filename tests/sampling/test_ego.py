from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from pyg_textgraph.sampling import CSRGraph, Egos, ego, sample_egos
from pyg_textgraph.sampling.ego import splitmix64


def random_edges(seed: int, num_nodes: int = 40, num_edges: int = 90) -> np.ndarray:
    """Directed edges with self-loops, parallel edges, a hub (node 0) and isolated nodes (the last five)."""
    random = np.random.default_rng(seed)
    edges = random.integers(num_nodes - 5, size=(2, num_edges))
    hub = np.stack([np.zeros(15, np.int64), random.integers(num_nodes - 5, size=15)])
    hub = np.where(random.random(15) < 0.5, hub, hub[::-1])
    return np.concatenate([edges, edges[:, :10], edges[::-1, 10:15], hub, np.full((2, 2), 3)], axis=1)


def priorities(seed: int, epoch: int, target: int, num_nodes: int) -> np.ndarray:
    def number(key: int, index: int) -> int:
        return int(splitmix64(np.array([key], np.uint64), np.array([index], np.uint64))[0])

    key = number(number(seed, epoch), target)
    return np.array([number(key, v) for v in range(num_nodes)], np.uint64)


def expected_ego(edges: np.ndarray, num_nodes: int, target: int, k: int, hops: int, seed: int, epoch: int):
    """The definition, by breadth-first search over all nodes."""
    graph = nx.Graph(edges.T.tolist())
    graph.add_nodes_from(range(num_nodes))
    distance = nx.single_source_shortest_path_length(graph, target, cutoff=hops)
    priority = priorities(seed, epoch, target, num_nodes)
    others = sorted(set(distance) - {target}, key=lambda v: (distance[v], priority[v]))
    nodes = [target, *others[:k]]
    inside = [e for e, (u, v) in enumerate(edges.T.tolist()) if u in nodes and v in nodes]
    return nodes, [[nodes.index(v) for v in end] for end in edges[:, inside].tolist()], inside


def as_lists(egos: Egos) -> list[tuple]:
    return [tuple(part.tolist() for part in parts) for parts in egos.split()]


@pytest.mark.parametrize(("k", "hops"), [(0, 2), (1, 1), (6, 1), (6, 2), (12, 3), (100, 2), (5, 0)])
@pytest.mark.parametrize("budget", [10, 1 << 16])
def test_equals_breadth_first_search(k: int, hops: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ego, "_BUDGET", budget)
    for trial in range(3):
        edges = random_edges(trial)
        egos = sample_egos(CSRGraph.from_edge_index(edges, 40), np.arange(40), k, hops, seed=trial, epoch=7)
        assert as_lists(egos) == [expected_ego(edges, 40, t, k, hops, trial, 7) for t in range(40)]


def test_candidates_met_many_times_leave_room_filled() -> None:
    middle, leaf = np.arange(1, 101), np.arange(101, 151)
    pairs = np.stack([np.repeat(middle, 50), np.tile(leaf, 100)])
    edges = np.concatenate([np.stack([np.zeros(100, np.int64), middle]), pairs], axis=1)
    graph = CSRGraph.from_edge_index(edges, 151)
    for k in (130, 150):
        assert as_lists(sample_egos(graph, np.array([0]), k, 2)) == [expected_ego(edges, 151, 0, k, 2, 0, 0)]


def test_a_target_may_come_twice() -> None:
    graph = CSRGraph.from_edge_index(np.array([[0], [1]]), 2)
    assert as_lists(sample_egos(graph, np.array([0, 0, 0]), 5, 2)) == [([0, 1], [[0], [1]], [0])] * 3


def test_direction_and_multiplicity_of_edges() -> None:
    edges = np.array([[1, 0, 0, 2, 2], [0, 1, 1, 0, 2]])
    nodes, index, ids = expected_ego(edges, 3, 0, 2, 1, 0, 0)
    assert ids == [0, 1, 2, 3, 4]
    assert as_lists(sample_egos(CSRGraph.from_edge_index(edges, 3), np.array([0]), 2, 1)) == [(nodes, index, ids)]


@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_no_edges(num_nodes: int) -> None:
    graph = CSRGraph.from_edge_index(np.zeros((2, 0), np.int64), num_nodes)
    assert as_lists(sample_egos(graph, np.arange(num_nodes), 5, 2)) == [([v], [[], []], []) for v in range(num_nodes)]


def test_hub_keeps_few_edges() -> None:
    spokes = np.stack([np.zeros(1000, np.int64), np.arange(1, 1001)])
    graph = CSRGraph.from_edge_index(np.concatenate([spokes, spokes[::-1]], axis=1), 1001)
    assert np.diff(graph.kept_ptr).max() == 2
    assert np.diff(graph.neighbor_ptr)[0] == 1000


def test_depends_on_seed_epoch_and_target_only() -> None:
    graph = CSRGraph.from_edge_index(random_edges(0), 40)
    together = as_lists(sample_egos(graph, np.arange(40), 8, 2, seed=3, epoch=1))
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 2))
    assert as_lists(sample_egos(graph, order, 8, 2, seed=3, epoch=1)) == [together[v] for v in order]
    assert [as_lists(sample_egos(graph, np.array([v]), 8, 2, 3, 1))[0] for v in range(40)] == together
    for seed, epoch in ((3, 2), (4, 1)):
        assert as_lists(sample_egos(graph, np.arange(40), 8, 2, seed, epoch)) != together


def test_fewer_neighbors_are_a_prefix_of_more() -> None:
    graph = CSRGraph.from_edge_index(random_edges(1), 40)
    few, many = (as_lists(sample_egos(graph, np.arange(40), k, 2)) for k in (5, 20))
    assert all(a[0] == b[0][: len(a[0])] for a, b in zip(few, many, strict=True))


def chi_square(counts: np.ndarray, chosen: int, trials: int) -> float:
    """p-value of equal inclusion of n candidates, ``chosen`` of them without replacement in every trial."""
    n = counts.size
    p = chosen / n
    statistic = ((counts - trials * p) ** 2).sum() / (trials * p * (1 - p)) * (n - 1) / n
    return float(stats.chi2.sf(statistic, n - 1))


@pytest.mark.parametrize("varied", ["epoch", "seed"])
def test_ties_are_uniform(varied: str) -> None:
    # candidate 11 is reached over ten paths, the 49 others over one: paths must not count
    middle, leaf = np.arange(1, 11), np.arange(11, 61)
    ways = np.stack([np.concatenate([middle, middle[np.arange(49) % 10]]), np.append(np.full(10, 11), leaf[1:])])
    edges = np.concatenate([np.stack([np.zeros(10, np.int64), middle]), ways], axis=1)
    graph = CSRGraph.from_edge_index(edges, 61)
    trials, counts = 1500, np.zeros(61, np.int64)
    for i in range(trials):
        taken = sample_egos(graph, np.array([0]), 25, 2, **{varied: i}).node
        assert set(taken[:11]) == set(range(11))
        counts[taken] += 1
    assert chi_square(counts[11:], 15, trials) > 0.01


def test_pairs_of_ties_are_uniform() -> None:
    graph = CSRGraph.from_edge_index(np.stack([np.zeros(6, np.int64), np.arange(1, 7)]), 7)
    pair = {two: i for i, two in enumerate(combinations(range(1, 7), 2))}
    counts = np.zeros(15, np.int64)
    for epoch in range(3000):
        counts[pair[tuple(sorted(sample_egos(graph, np.array([0]), 2, 1, epoch=epoch).node[1:].tolist()))]] += 1
    assert stats.chisquare(counts).pvalue > 0.01


def test_ties_differ_between_targets() -> None:
    # 300 targets around 20 common neighbours: every one must be as likely
    edges = np.stack([np.repeat(np.arange(20, 320), 20), np.tile(np.arange(20), 300)])
    egos = sample_egos(CSRGraph.from_edge_index(edges, 320), np.arange(20, 320), 5, 1)
    counts = np.bincount(egos.node[egos.node < 20], minlength=20)
    assert chi_square(counts, 5, 300) > 0.01


def test_splitmix64_is_the_published_one() -> None:
    first = splitmix64(np.array([1234567], np.uint64), np.arange(3, dtype=np.uint64))
    assert first.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("bad", [-1, 40])
def test_target_out_of_range(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"'targets' holds {bad} but the graph has 40 nodes"):
        sample_egos(CSRGraph.from_edge_index(random_edges(0), 40), np.array([0, bad]), 3, 2)


def test_edge_out_of_range() -> None:
    with pytest.raises(ValueError, match="index"):
        CSRGraph.from_edge_index(np.array([[0], [5]]), 5)

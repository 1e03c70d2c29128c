"""Ego sampling against torch_geometric.utils.k_hop_subgraph, both with the induced edges, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph, subgraph, to_undirected

from pyg_textgraph.sampling import CSRGraph, sample_egos

NUM_NODES, NUM_EDGES = 169_343, 2_330_000
NUM_NEIGHBORS, NUM_HOPS = 60, 2
PEER = "k_hop_subgraph, 60 of its nodes at random, subgraph"


def uniform() -> Tensor:
    """A uniform random graph the size of ogbn-arxiv, (2, E)."""
    return torch.randint(NUM_NODES, (2, NUM_EDGES), generator=torch.Generator().manual_seed(0))


def power_law() -> Tensor:
    """The same size with degrees proportional to rank^-0.6, the largest about 10,000, (2, E)."""
    degree = np.arange(1, NUM_NODES + 1) ** -0.6
    degree = np.minimum(degree * 2 * NUM_EDGES / degree.sum(), 11_500)
    edges = np.random.default_rng(0).choice(NUM_NODES, (2, NUM_EDGES), p=degree / degree.sum())
    return torch.from_numpy(edges)


def rows() -> list[dict[str, Any]]:
    """Seconds per ego, and once per graph the seconds to sort its edges."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            row for name, edges in (("uniform", uniform()), ("power-law", power_law())) for row in _rows(name, edges)
        ]
    finally:
        torch.set_num_threads(threads)


def _rows(name: str, edge_index: Tensor) -> Iterator[dict[str, Any]]:
    start = time.perf_counter()
    graph = CSRGraph.from_edge_index(edge_index.numpy(), NUM_NODES)
    yield {
        "case": f"ego sampling, {name}: sort the edges once",
        "metric": "seconds",
        "value": time.perf_counter() - start,
    }

    targets = np.random.default_rng(1).permutation(NUM_NODES)
    both_ways = to_undirected(edge_index, num_nodes=NUM_NODES)

    def ours(nodes: np.ndarray) -> None:
        sample_egos(graph, nodes, NUM_NEIGHBORS, NUM_HOPS)

    def peer(nodes: np.ndarray) -> None:
        for node in nodes.tolist():
            near = k_hop_subgraph(node, NUM_HOPS, both_ways, num_nodes=NUM_NODES)[0]
            near = near[near != node]
            kept = near[torch.randperm(near.numel())[:NUM_NEIGHBORS]]
            subgraph(torch.cat([torch.tensor([node]), kept]), edge_index, relabel_nodes=True, num_nodes=NUM_NODES)

    peer_value = _seconds_per_ego(peer, targets[:8], 8)
    hub = int(np.diff(graph.neighbor_ptr).max())
    for batch_size, count in ((64, 4096), (1, 512)):
        value = _seconds_per_ego(ours, targets[:count], batch_size)
        yield {
            "case": f"ego sampling, {name}, largest degree {hub}, {batch_size} at a time",
            "metric": "seconds per ego",
            "value": value,
            "peer": PEER,
            "peer_value": peer_value,
            "ratio": value / peer_value,
        }


def _seconds_per_ego(sample: Callable[[np.ndarray], None], targets: np.ndarray, batch_size: int) -> float:
    sample(targets[:2])
    start = time.perf_counter()
    for first in range(0, targets.size, batch_size):
        sample(targets[first : first + batch_size])
    return (time.perf_counter() - start) / targets.size


if __name__ == "__main__":
    for row in rows():
        print(row)

"""Random graphs and slow, obvious oracles for the tests of the structural transforms."""

from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

quick = settings(max_examples=40, deadline=None, derandomize=True)


def graph(num_nodes: int, edges: list[tuple[int, int]], weights: list[float] | None = None, **kwargs: Any) -> Data:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous()
    weight = {} if weights is None else {"edge_weight": torch.tensor(weights, dtype=torch.float64)}
    return Data(edge_index=index, num_nodes=num_nodes, **weight, **kwargs)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 7) -> Data:
    """Self-loops, parallel edges, isolated nodes and zero weights included; directed or not."""
    n = draw(st.integers(0, max_nodes))
    node = st.integers(0, max(n - 1, 0))
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n if n else 0))
    weights = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]), min_size=len(edges), max_size=len(edges)))
    if draw(st.booleans()):
        edges, weights = edges + [(v, u) for u, v in edges], weights + weights
    return graph(n, edges, weights)


def adjacency(data: Data, weighted: bool = False) -> Tensor:
    """A[u, v] by its definition, float64."""
    out = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    weights = data.edge_weight.tolist() if weighted else [1.0] * data.num_edges
    for (u, v), weight in zip(data.edge_index.T.tolist(), weights, strict=True):
        if u != v:
            out[u, v] = out[u, v] + weight if weighted else 1.0
    return out


def permuted(data: Data, order: Tensor) -> Data:
    """The same graph, node ``order[i]`` of it called i."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Data(edge_index=place[data.edge_index], edge_weight=data.edge_weight, num_nodes=data.num_nodes)

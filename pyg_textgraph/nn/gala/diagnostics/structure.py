"""How far apart an order puts the ends of edges."""

from __future__ import annotations

import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_scipy_sparse_matrix, to_undirected

from pyg_textgraph.data.linearization import GraphPrompt


def simple_edges(edge_index: Tensor) -> Tensor:
    """Every undirected edge once, the smaller node first, without self-loops, (2, E)."""
    index, _ = remove_self_loops(edge_index)
    return coalesce(torch.stack([index.amin(0), index.amax(0)]))


def first_tokens(prompt: GraphPrompt) -> Tensor:
    """Place of every node's first token, (N,)."""
    place = torch.arange(len(prompt))[prompt.node >= 0]
    first = torch.full((prompt.num_nodes,), len(prompt))
    return first.scatter_reduce(0, prompt.node[prompt.node >= 0], place, "amin")


def edge_stretch(prompt: GraphPrompt) -> Tensor:
    """Tokens between the first tokens of the two ends of every edge (:func:`simple_edges`), (E,)."""
    source, target = first_tokens(prompt)[simple_edges(prompt.edge_index)]
    return (source - target).abs()


def bandwidth(graph: Data) -> tuple[int, bool]:
    r"""The smallest possible longest edge over all orders of the nodes, and whether it is exact.

    Exact for paths (1), cycles (2), stars (:math:`\lceil (n-1)/2 \rceil`), complete graphs (:math:`n-1`) and graphs
    without edges (0), isolated nodes aside; otherwise the longest edge in reverse Cuthill–McKee order, an upper
    bound.
    """
    edges = simple_edges(graph.edge_index.cpu())
    nodes, edges = edges.unique(return_inverse=True)
    n, m = nodes.numel(), edges.size(1)
    if m == 0:
        return 0, True
    if m == n * (n - 1) // 2:
        return n - 1, True
    matrix = to_scipy_sparse_matrix(to_undirected(edges, num_nodes=n), num_nodes=n).tocsr()
    order = torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=True).copy()).long()
    place = torch.empty_like(order).scatter_(0, order, torch.arange(n))
    width = int((place[edges[0]] - place[edges[1]]).abs().max())
    degree = torch.bincount(edges.flatten(), minlength=n)
    if m == n - 1 == int(degree.max()):
        return -(-m // 2), True
    # connected with all degrees at most 2; reverse Cuthill–McKee is optimal there
    return width, width == 1 or bool((degree == 2).all() and width == 2)

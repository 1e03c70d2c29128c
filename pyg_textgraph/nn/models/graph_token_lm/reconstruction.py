"""What a language model's states at the nodes of a graph are asked to keep: the nodes' vectors and their edges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import to_dense_adj, to_dense_batch


def choose_masked(num_nodes: Tensor, ratio: float) -> Tensor:
    """Hides the same share of every graph's nodes: ⌊ratio·N + ½⌋ of N, drawn uniformly.

    Shapes:
        - **num_nodes** (B,); **returns** (sum of N,) bool
    """
    graph = torch.repeat_interleave(num_nodes)
    drawn = torch.rand(graph.numel(), dtype=torch.float64, device=graph.device)
    place = (graph + drawn).argsort().argsort()  # graphs in turn, each in random order
    rank = place - (num_nodes.cumsum(0) - num_nodes)[graph]
    return rank < (ratio * num_nodes + 0.5).floor()[graph]


def feature_loss(predicted: Tensor, x: Tensor) -> Tensor:
    r"""Mean of :math:`1 - \cos(\hat{x}_v, x_v)` over nodes; 0 without any. Shapes: **predicted**, **x** (M, d)."""
    return (1 - F.cosine_similarity(predicted, x, dim=-1)).sum() / max(1, x.size(0))


def topology_loss(source: Tensor, sink: Tensor, edge_index: Tensor, num_nodes: Tensor) -> Tensor:
    r"""Binary cross-entropy of all ordered pairs of different nodes of one graph, edges against the rest.

    .. math::
        s_{uv} = \frac{\mathrm{source}_u \cdot \mathrm{sink}_v}{\sqrt{r}}, \qquad
        \tfrac12 \operatorname*{mean}_{(u,v) \in E} \log(1 + e^{-s_{uv}})
        + \tfrac12 \operatorname*{mean}_{(u,v) \notin E} \log(1 + e^{s_{uv}})

    Means are over the batch. Where all pairs are edges, or none is, the other half counts whole; without pairs, 0.

    Shapes:
        - **source**, **sink** (N, r); **edge_index** (2, E); **num_nodes** (B,), sum N
    """
    graph = torch.repeat_interleave(num_nodes)
    (u, inside), (v, _) = to_dense_batch(source, graph), to_dense_batch(sink, graph)  # [B, n, r]
    score = u @ v.transpose(1, 2) * u.size(-1) ** -0.5  # [B, n, n]
    edge = to_dense_adj(edge_index, graph, max_num_nodes=u.size(1), batch_size=num_nodes.numel()) > 0
    pair = inside[:, :, None] & inside[:, None] & ~torch.eye(u.size(1), dtype=torch.bool, device=u.device)
    halves = [F.softplus(-score[pair & edge]), F.softplus(score[pair & ~edge])]
    means = [half.mean() for half in halves if half.numel()]
    return torch.stack(means).mean() if means else score.sum() * 0

"""The definition of graph attention, computed densely. Short on purpose; never optimized."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout


def graph_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: TokenLayout,
    bias: Tensor | None = None,
    *,
    pairs: Tensor | None = None,
    visible: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Softmax attention with a bias per pair of nodes; arguments as :func:`~pyg_textgraph.ops.graph_attention`.

    Shapes:
        - **q** (T, H, D); **k**, **v** (T, H_kv, D), H a multiple of H_kv
        - **bias** (B, H, N, N), row = query's node, the diagonal is ignored; with **pairs** (2, P): (H, P)
        - **returns** (T, H, D)
    """
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    if pairs is not None:
        bias, visible = dense_pairs(pairs, bias, layout.num_nodes)
    score = torch.einsum("ihd,jhd->hij", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    if bias is not None:
        score = score + layout.expand_pairs(bias)  # [H, T, T], 0 inside a node
    see = layout.visible(visible, window)  # [T, T]
    blind = ~see.any(-1)[:, None]  # a row that sees nothing returns 0
    weight = score.masked_fill(~see, -torch.inf).masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)
    return torch.einsum("hij,jhd->ihd", weight, v)


def dense_pairs(pairs: Tensor, bias: Tensor | None, num_nodes: Tensor) -> tuple[Tensor | None, Tensor]:
    """Listed pairs as the dense form; takes **pairs** (2, P), nodes counted over the batch."""
    size = int(num_nodes.max()) if num_nodes.numel() else 0
    return spread_pairs(place_of(pairs, num_nodes), bias, num_nodes.numel(), size)


def spread_pairs(place: Tensor, bias: Tensor | None, num_graphs: int, size: int) -> tuple[Tensor | None, Tensor]:
    """Dense form of pairs whose places are known.

    Shapes:
        - **place** (3, P) as :func:`place_of` returns; **bias** (H, P)
        - **returns** bias (B, H, N, N) and visible (B, N, N), N = ``size``
    """
    at = tuple(place)
    see = torch.zeros(num_graphs, size, size, dtype=torch.bool, device=place.device)
    see[at] = True
    if bias is None:
        return None, see
    dense = bias.new_zeros(num_graphs, size, size, bias.size(0))
    return dense.index_put(at, bias.T).permute(0, 3, 1, 2), see


def place_of(pairs: Tensor, num_nodes: Tensor) -> Tensor:
    """Graph, query's node and key's node within the graph of listed pairs (2, P): (3, P)."""
    total = int(num_nodes.sum())
    if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < total:
        got = f"nodes from {int(pairs.min())} to {int(pairs.max())}"
        raise ValueError(f"graph_attention: 'pairs' has {got}, expected nodes of the batch, 0 to {total - 1}")
    graph = torch.repeat_interleave(num_nodes)[pairs]  # [2, P]
    if bool((graph[0] != graph[1]).any()):
        raise ValueError("graph_attention: 'pairs' joins nodes of two graphs")
    if torch.unique(pairs[0] * total + pairs[1]).numel() < pairs.size(1):
        raise ValueError("graph_attention: 'pairs' lists a pair twice")
    start = num_nodes.cumsum(0) - num_nodes
    return torch.cat([graph[:1], pairs - start[graph]])

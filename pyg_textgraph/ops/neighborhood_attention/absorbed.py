"""Neighbourhood attention that projects the few queries and sums instead of the many members."""

from __future__ import annotations

import torch
from torch import Tensor


def neighborhood_attention_absorbed(
    x: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor,
    bias: Tensor,
    *,
    query_bias: Tensor,
    value_bias: Tensor,
    num_queries: int = 1,
) -> Tensor:
    r"""See :func:`~pyg_textgraph.ops.neighborhood_attention`.

    :math:`q^\top (W_K x_j) = (W_K^\top q)^\top x_j` and :math:`\sum_j w_j W_V x_j = W_V \sum_j w_j x_j`, so a member
    costs :math:`2Hd` products per query instead of :math:`2d^2`, and no key or value is ever stored.
    """
    q = torch.einsum("cid,hed->cihe", x[:, :num_queries], query) + query_bias
    q = torch.einsum("cihe,hed->chid", q, key) * query.size(1) ** -0.5  # [C, H, Q, d]
    score = torch.matmul(q.flatten(1, 2), x.mT).unflatten(1, q.shape[1:3])  # [C, H, Q, M]
    score = score + relation_bias(bias, num_queries, x.size(1))
    weight = score.masked_fill(~valid[:, None, None], -torch.inf).softmax(-1)
    mixed = torch.matmul(weight.flatten(1, 2), x).unflatten(1, q.shape[1:3])  # [C, H, Q, d]
    return (torch.einsum("chid,hed->cihe", mixed, value) + value_bias).flatten(2)


def relation_bias(bias: Tensor, num_queries: int, num_members: int) -> Tensor:
    """The bias of every (query, member), the centre being member 0: (3, H) -> (H, Q, M)."""
    is_neighbor = (torch.arange(num_members, device=bias.device) > 0).long()
    return bias.T[:, is_neighbor[:num_queries, None] + is_neighbor]

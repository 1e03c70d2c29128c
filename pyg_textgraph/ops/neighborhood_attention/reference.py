"""The definition of neighbourhood attention, computed with all projections. Short on purpose; never optimized."""

from __future__ import annotations

import torch
from torch import Tensor


def neighborhood_attention_reference(
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
    """Multi-head attention in every neighbourhood; arguments as :func:`~pyg_textgraph.ops.neighborhood_attention`.

    Shapes:
        - **x** (C, M, d); **query**, **key**, **value** (H, D, d); **query_bias**, **value_bias** (H, D)
        - **valid** (C, M); **bias** (3, H)
        - **returns** (C, num_queries, H · D)
    """
    q = torch.einsum("cid,hed->cihe", x[:, :num_queries], query) + query_bias
    k = torch.einsum("cjd,hed->cjhe", x, key)
    v = torch.einsum("cjd,hed->cjhe", x, value) + value_bias
    # 0 for centre–centre, 1 for centre–neighbour, 2 for neighbour–neighbour
    is_neighbor = (torch.arange(x.size(1), device=x.device) > 0).long()
    relation = is_neighbor[:num_queries, None] + is_neighbor
    score = torch.einsum("cihe,cjhe->chij", q, k) * q.size(-1) ** -0.5 + bias.T[:, relation]
    weight = score.masked_fill(~valid[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("chij,cjhe->cihe", weight, v).flatten(2)

"""Multi-head attention among the members of many small neighbourhoods, with a bias per relation."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.backend import check_backend
from pyg_textgraph.ops.neighborhood_attention.absorbed import neighborhood_attention_absorbed
from pyg_textgraph.ops.neighborhood_attention.reference import neighborhood_attention_reference

Backend = Literal["absorbed", "reference"]
_BACKENDS = {"absorbed": neighborhood_attention_absorbed, "reference": neighborhood_attention_reference}

__all__ = ["neighborhood_attention", "neighborhood_attention_absorbed", "neighborhood_attention_reference"]


def neighborhood_attention(
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
    backend: Backend = "absorbed",
) -> Tensor:
    r"""Attention of a centre, or of all members, over a neighbourhood.

    :math:`g_i = \sum_j \mathrm{softmax}_j(q_i^\top k_j/\sqrt{D} + b_{r(i,j)})\,v_j` per head, with :math:`r` one of
    centre–centre, centre–neighbour and neighbour–neighbour (`Yang et al., 2021 <https://arxiv.org/abs/2105.02605>`_,
    Eq. 5). Keys have no bias of their own: it would add one number to a whole row of scores, which softmax ignores.

    Args:
        x: States of the members, the centre first.
        query: Query projection per head.
        key: Key projection per head.
        value: Value projection per head.
        valid: Which members exist; the centre always does.
        bias: One number per relation and head.
        query_bias: Added to the queries.
        value_bias: Added to the values.
        num_queries: 1 if only the centre asks, M if all members do.
        backend: ``"absorbed"`` or ``"reference"`` (all projections).

    Shapes:
        - **x** (C, M, d); **query**, **key**, **value** (H, D, d); **query_bias**, **value_bias** (H, D)
        - **valid** (C, M) bool; **bias** (3, H)
        - **returns** (C, num_queries, H · D)
    """
    check_backend("neighborhood_attention", backend, _BACKENDS)
    return _BACKENDS[backend](
        x, query, key, value, valid, bias, query_bias=query_bias, value_bias=value_bias, num_queries=num_queries
    )

"""Packed attention one run of equally long texts at a time: no padding, and no gather."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_textgraph.ops.packed_attention.reference import Runs


def packed_attention_by_length(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    runs: Runs,
    *,
    slot_key: Tensor | None = None,
    slot_value: Tensor | None = None,
    slot_query: Tensor | None = None,
    bias: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """See :func:`~pyg_textgraph.ops.packed_attention`. A run is a view of shape (texts, length, H, D)."""
    scale = q.size(-1) ** -0.5 if scale is None else scale
    num_slots = 0 if slot_key is None else slot_key.size(0)
    out: list[Tensor] = []
    token = text = 0
    for count, length in runs:
        here = slice(token, token + count * length)
        query, key, value = (x[here].unflatten(0, (count, length)) for x in (q, k, v))
        mask = _mask(bias, window, length, query)  # [H or 1, length, length]
        if slot_key is not None and slot_value is not None and text < num_slots:
            some = slice(text, text + count)
            column = None
            extra = slot_key[some, None]  # [count, 1, H, D]
            if slot_query is not None:
                # the slot has a query of its own: its score enters as a bias on a key of zeros
                own = slot_query[here].unflatten(0, (count, length))
                column = torch.einsum("clhd,chd->chl", own, slot_key[some])[..., None] * scale
                extra = torch.zeros_like(extra)
            key = torch.cat([key, extra], dim=1)
            value = torch.cat([value, slot_value[some, None]], dim=1)
            mask = _with_column(mask, column, query)
        attended = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, dropout, scale=scale
        )
        out.append(attended.transpose(1, 2).flatten(0, 1))
        token, text = here.stop, text + count
    return torch.cat(out) if out else torch.empty_like(q)


def row_attention(
    query: Tensor,
    k: Tensor,
    v: Tensor,
    runs: Runs,
    *,
    slot_key: Tensor | None = None,
    slot_value: Tensor | None = None,
    bias: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    r"""Attention of one query per text, each to the tokens of its text and to its slot.

    Args:
        query: Of the first n texts.
        k: Keys of all tokens.
        v: Values of all tokens.
        runs: As for :func:`~pyg_textgraph.ops.packed_attention`.
        slot_key: One more key for each of the first C of these texts.
        slot_value: The value that goes with it.
        bias: Added to the scores of a text's tokens by their places in it.
        window: The query sees this many places beyond the first token, and the slot.
        scale: Factor on the products, :math:`1/\sqrt{D}` by default.
        dropout: Share of the weights that are dropped.

    Shapes:
        - **query** (n, H, D); **k**, **v** (T, H, D); **slot_key**, **slot_value** (C, H, D); **bias** (H, L)
        - **returns** (n, H, D)
    """
    num_slots = 0 if slot_key is None else slot_key.size(0)
    out: list[Tensor] = []
    token = text = 0
    for count, length in runs:
        if text >= query.size(0):
            break
        here, some = slice(token, token + count * length), slice(text, text + count)
        key, value = (x[here].unflatten(0, (count, length)) for x in (k, v))
        mask = None if bias is None else bias[:, :length]  # [H or 1, length]
        if window is not None and length > window + 1:
            far = torch.arange(length, device=query.device) > window
            mask = (query.new_zeros(1, length) if mask is None else mask).masked_fill(far, -torch.inf)
        if slot_key is not None and slot_value is not None and text < num_slots:
            key, value = (torch.cat([x, slot[some, None]], 1) for x, slot in ((key, slot_key), (value, slot_value)))
            mask = None if mask is None else F.pad(mask, (0, 1))
        attended = F.scaled_dot_product_attention(
            query[some, :, None],
            key.transpose(1, 2),
            value.transpose(1, 2),
            None if mask is None else mask[:, None],
            dropout,
            scale=scale,
        )
        out.append(attended[:, :, 0])
        token, text = here.stop, some.stop
    return torch.cat(out) if out else torch.empty_like(query)


def _mask(bias: Tensor | None, window: int | None, length: int, like: Tensor) -> Tensor | None:
    mask = None if bias is None else bias[:, :length, :length]
    if window is None or length <= window + 1:
        return mask
    place = torch.arange(length, device=like.device)
    far = (place[:, None] - place).abs() > window
    base = like.new_zeros(1, length, length) if mask is None else mask
    return base.masked_fill(far, -torch.inf)


def _with_column(mask: Tensor | None, column: Tensor | None, query: Tensor) -> Tensor | None:
    """Adds the slot's column, 0 unless given: (H or 1, length, length) -> (count or 1, H, length, length + 1)."""
    if mask is None and column is None:
        return None
    count, length, heads = query.shape[:3]
    if column is None:
        assert mask is not None
        return F.pad(mask, (0, 1))[None]
    tokens = query.new_zeros(1, length, length) if mask is None else mask
    return torch.cat([tokens.expand(count, heads, -1, -1), column], dim=-1)

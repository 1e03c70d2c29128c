"""Bidirectional attention over packed texts, some of which have one extra key and value."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from pyg_textgraph.ops.backend import check_backend
from pyg_textgraph.ops.packed_attention.by_length import packed_attention_by_length, row_attention
from pyg_textgraph.ops.packed_attention.reference import Runs, packed_attention_reference

Backend = Literal["by_length", "reference"]

__all__ = ["Runs", "packed_attention", "packed_attention_by_length", "packed_attention_reference", "row_attention"]


def packed_attention(
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
    backend: Backend = "by_length",
) -> Tensor:
    r"""Attention of every token to the tokens of its own text and to the text's slot, if it has one.

    Args:
        q: Queries of packed texts, text after text.
        k: Keys.
        v: Values.
        runs: How many texts of which length follow each other.
        slot_key: One more key for each of the first C texts, visible to all of its tokens whatever **window** is, with
            score bias 0.
        slot_value: The value that goes with it.
        slot_query: What the slot's key is multiplied with, by default **q**. An encoder with rotary positions gives
            its queries before rotation: the slot has no position.
        bias: Added to the scores of a text's tokens by their places in it; gets a gradient.
        window: Tokens more than this many places apart do not see each other.
        scale: Factor on the products, :math:`1/\sqrt{D}` by default.
        dropout: Share of the weights that are dropped; needs the backend ``"by_length"``.
        backend: ``"by_length"`` or ``"reference"`` (dense).

    Shapes:
        - **q**, **k**, **v** (T, H, D); **slot_key**, **slot_value** (C, H, D); **slot_query** (T_C, H, D), T_C tokens
          in the first C texts
        - **bias** (H, L, L), L at least the longest text
        - **returns** (T, H, D)

    Raises:
        ValueError: If shapes do not fit, or a run holds texts with and without a slot.
    """
    check_backend("packed_attention", backend, get_args(Backend))
    total = sum(count * length for count, length in runs)
    if q.dim() != 3 or q.size(0) != total:
        raise ValueError(f"packed_attention: 'q' is {tuple(q.shape)}, expected (T, H, D) with T = {total} as in 'runs'")
    if k.shape != q.shape or v.shape != q.shape:
        raise ValueError(f"packed_attention: 'k' and 'v' are {tuple(k.shape)}, {tuple(v.shape)}, expected q's shape")
    if (slot_key is None) != (slot_value is None):
        raise ValueError("packed_attention: give 'slot_key' and 'slot_value', or neither")
    if slot_key is not None:
        ends = [0]
        for count, _ in runs:
            ends.append(ends[-1] + count)
        if slot_key.size(0) not in ends:
            raise ValueError(f"packed_attention: {slot_key.size(0)} slots end inside a run, expected one of {ends}")
    if backend == "reference":
        if dropout:
            raise ValueError("packed_attention: the backend 'reference' has no dropout")
        return packed_attention_reference(
            q, k, v, runs, slot_key=slot_key, slot_value=slot_value, slot_query=slot_query, bias=bias, window=window,
            scale=scale,
        )  # fmt: skip
    return packed_attention_by_length(
        q, k, v, runs, slot_key=slot_key, slot_value=slot_value, slot_query=slot_query, bias=bias, window=window,
        scale=scale, dropout=dropout,
    )  # fmt: skip

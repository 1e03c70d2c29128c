"""The definition of packed attention, computed densely. Short on purpose; never optimized."""

from __future__ import annotations

import torch
from torch import Tensor

Runs = tuple[tuple[int, int], ...]


def packed_attention_reference(
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
) -> Tensor:
    """Attention within each text and to its slot; arguments as :func:`~pyg_textgraph.ops.packed_attention`.

    Shapes:
        - **q**, **k**, **v** (T, H, D); **slot_key**, **slot_value** (C, H, D); **slot_query** (T_C, H, D)
        - **bias** (H, L, L), L at least the longest text
        - **returns** (T, H, D)
    """
    scale = q.size(-1) ** -0.5 if scale is None else scale
    length = torch.tensor([n for count, n in runs for _ in range(count)], dtype=torch.long, device=q.device)
    text = torch.repeat_interleave(length)  # [T]
    place = torch.arange(text.numel(), device=q.device) - (length.cumsum(0) - length)[text]
    score = torch.einsum("ihd,jhd->hij", q, k) * scale
    if bias is not None:
        score = score + bias[:, place[:, None], place]
    see = text[:, None] == text
    if window is not None:
        see = see & ((place[:, None] - place).abs() <= window)
    if slot_key is not None and slot_value is not None:
        own = text < slot_key.size(0)  # [T], tokens of texts with a slot
        slot_query = q[own] if slot_query is None else slot_query
        extra = torch.einsum("ihd,chd->hic", slot_query, slot_key) * scale
        rest = extra.new_zeros(extra.size(0), int((~own).sum()), extra.size(2))
        score = torch.cat([score, torch.cat([extra, rest], dim=1)], dim=-1)
        see = torch.cat([see, text[:, None] == torch.arange(slot_key.size(0), device=q.device)], dim=-1)
        v = torch.cat([v, slot_value])
    return torch.einsum("hij,jhd->ihd", score.masked_fill(~see, -torch.inf).softmax(-1), v)

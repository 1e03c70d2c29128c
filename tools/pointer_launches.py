"""What one step of a Graph Machine launches, for the report of ``tools/kernel_resources.py``."""

from __future__ import annotations

import torch

from pyg_textgraph.ops.edge_attention.triton_launch import Gradients, Inputs, attend_launch, backward_launches
from pyg_textgraph.ops.launch import Launch
from pyg_textgraph.ops.reverse_index import ReverseIndex

TOKENS, SLOTS = 16, 4
# heads, groups, channels
HEADS = {64: (4, 2), 128: (16, 8)}


def attention_launches(dtype: torch.dtype, channels: int, slots: int = SLOTS) -> list[Launch]:
    """Features in `dtype`, edges in float32."""
    heads, groups = HEADS.get(channels, (16, 8))
    q, out, grad, dq = torch.empty(4, 1, TOKENS, heads, channels, dtype=dtype)
    k, v, dk, dv = torch.empty(4, 1, TOKENS, groups, channels, dtype=dtype)
    index = torch.empty(1, TOKENS, groups, slots, dtype=torch.int32)
    weight, dweight = torch.empty(2, 1, TOKENS, groups, slots)
    attention, grad_attention, step = torch.empty(3, 1, TOKENS, heads, slots)
    node, dnode, edge, dedge = (torch.empty(1, TOKENS, x) for x in (heads, heads, groups, groups))
    start = torch.empty(TOKENS * groups + 1, dtype=torch.int32)
    reverse = ReverseIndex(index.flatten(), index.flatten(), start)
    inputs = Inputs(q, k, v, index, weight, node, edge)
    gradients = Gradients(dq, dk, dv, dweight, dnode, dedge, step)
    backward = backward_launches(inputs, attention, grad, grad_attention, gradients, reverse)
    return [attend_launch(inputs, out, attention), *backward]

"""What one step of a Graph Machine launches, for the report of ``tools/kernel_resources.py``."""

from __future__ import annotations

import torch

from pyg_textgraph.ops.edge_attention import triton_launch as attention
from pyg_textgraph.ops.launch import Launch
from pyg_textgraph.ops.mix import triton_launch as mix
from pyg_textgraph.ops.refer import triton_launch as refer
from pyg_textgraph.ops.reverse_index import ReverseIndex
from pyg_textgraph.ops.sparsify.triton_launch import sparsify_backward_launch, sparsify_launch

TOKENS, SLOTS = 64, 4
HEADS = {64: (4, 2), 128: (16, 8)}  # of d=256 and d=1024: heads and groups


def edge_attention_launches(dtype: torch.dtype, channels: int, slots: int = SLOTS) -> list[Launch]:
    """Features in `dtype`, edges in float32."""
    heads, groups = HEADS.get(channels, (16, 8))
    q, out, grad, dq = torch.empty(4, 1, TOKENS, heads, channels, dtype=dtype)
    k, v, dk, dv = torch.empty(4, 1, TOKENS, groups, channels, dtype=dtype)
    index, (weight, dweight) = _pointers(TOKENS, groups, slots), torch.empty(2, 1, TOKENS, groups, slots)
    share, grad_share, step = torch.empty(3, 1, TOKENS, heads, slots)
    node, dnode, edge, dedge = (torch.empty(1, TOKENS, x) for x in (heads, heads, groups, groups))
    inputs = attention.Inputs(q, k, v, index, weight, node, edge)
    gradients = attention.Gradients(dq, dk, dv, dweight, dnode, dedge, step)
    backward = attention.backward_launches(inputs, share, grad, grad_share, gradients, _reversed(index))
    return [attention.attend_launch(inputs, out, share), *backward]


def mix_launches(groups: list[tuple[int, int]], channels: int, heated: bool = True) -> list[Launch]:
    """Of groups of (edges, pointers), in float32 as edges are."""
    edges, pointers = map(list, zip(*groups, strict=True))
    candidates = sum(e * s for e, s in groups)
    weight, dweight = torch.empty(2, TOKENS, candidates)
    logits, dlogits = torch.empty(2, TOKENS, sum(edges), channels)
    heat, dheat = torch.empty(2, TOKENS, channels)
    inputs = mix.Inputs(_pointers(candidates)[0], weight, logits, heat if heated else None)
    kept, grad = torch.empty(2, TOKENS, channels, SLOTS)
    results = mix.Results(_pointers(channels, SLOTS)[0], kept, heat)
    backward = mix.mix_backward_launch(
        inputs, results, grad, dweight, dlogits, dheat if heated else None, edges, pointers
    )
    return [mix.mix_launch(inputs, results, edges, pointers), backward]


def refer_launches(channels: int, slots: int = SLOTS) -> list[Launch]:
    weight, next_weight, dweight, dnext, kept, grad = torch.empty(6, 1, TOKENS, channels, slots)
    index = _pointers(TOKENS, channels, slots)
    steps = refer.Steps(index, weight, index, next_weight)
    results = refer.Results(index, kept, torch.empty(1, TOKENS, channels))
    return [
        refer.refer_launch(steps, results),
        *refer.backward_launches(steps, results, grad, dweight, dnext, _reversed(index)),
    ]


def sparsify_launches(candidates: int) -> list[Launch]:
    index, (weight, dweight) = _pointers(candidates)[0], torch.empty(2, TOKENS, candidates)
    (kept, grad), total = torch.empty(2, TOKENS, SLOTS), torch.empty(TOKENS)
    out_index = _pointers(SLOTS)[0]
    return [
        sparsify_launch(index, weight, out_index, kept, total),
        sparsify_backward_launch(index, out_index, kept, grad, total, dweight),
    ]


def shapes_of_edges() -> dict[str, list[Launch]]:
    """K16 as in the presets without, with one and with both kinds of refresh edges; the largest preset; the limits."""
    return {
        "K16": mix_launches([(16, 4)], 32) + refer_launches(16),
        "refresh": mix_launches([(16, 4), (8, 1)], 32),
        "S": mix_launches([(16, 4), (8, 1), (8, 4)], 32),
        "groups": mix_launches([(16, 4)], 8, heated=False),
        "K32 S": mix_launches([(32, 4), (8, 1), (8, 4)], 64),
        "most": mix_launches([(64, 4)], 64) + refer_launches(16, 8) + sparsify_launches(64),
    }


def _pointers(*shape: int) -> torch.Tensor:
    return torch.empty(1, *(shape if len(shape) == 3 else (TOKENS, *shape)), dtype=torch.int32)


def _reversed(index: torch.Tensor) -> ReverseIndex:
    return ReverseIndex(index.flatten(), index.flatten(), torch.empty(index[..., 0].numel() + 1, dtype=torch.int32))

"""Which kernels mix runs on what, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from pyg_textgraph.ops.launch import Blocks, Launch
from pyg_textgraph.ops.mix.triton_kernels import mix_backward_kernel, mix_kernel

SMALLEST = 16  # side of a product


@dataclass(frozen=True)
class Inputs:
    """**index**, **weight** (n, m); **logits** (n, e, c); **temperature** (n, c)."""

    index: Tensor
    weight: Tensor
    logits: Tensor
    temperature: Tensor | None


class Results(NamedTuple):
    """**out_index**, **out_weight** (n, c, s); **scale** (n, c)."""

    out_index: Tensor
    out_weight: Tensor
    scale: Tensor


def padded(size: int) -> int:
    return max(SMALLEST, triton.next_power_of_2(size))


def mix_launch(inputs: Inputs, results: Results, edges: Sequence[int], pointers: Sequence[int]) -> Launch:
    """Fills the results; group i has ``edges[i]`` edges of ``pointers[i]`` pointers."""
    args = _common(inputs, results, edges, pointers)
    members = padded(args["M"])
    channels = min(padded(args["C"]), max(SMALLEST, 4096 // members))
    args |= {"BLOCK_M": members, "BLOCK_C": channels, "BLOCK_S": triton.next_power_of_2(args["S"])}
    args |= {"EDGES": SMALLEST}
    blocks = Blocks(1, warps=8 if members == 128 else 4)  # what does not spill, as tools/kernel_resources.py finds
    return Launch(mix_kernel, (len(inputs.index), triton.cdiv(args["C"], channels)), args, blocks)


def mix_backward_launch(
    inputs: Inputs, results: Results, grad: Tensor, dweight: Tensor, dlogits: Tensor, dtemperature: Tensor | None,
    edges: Sequence[int], pointers: Sequence[int],
) -> Launch:  # fmt: skip
    """Fills the gradients, shaped like the inputs."""
    args = _common(inputs, results, edges, pointers) | {"grad": grad}
    args |= {"BLOCK_E": padded(args["E"]), "BLOCK_C": padded(args["C"])}
    args |= {"dweight": dweight, "dlogits": dlogits, "dtemperature": dtemperature}
    warps = min(16, max(4, args["BLOCK_E"] * args["BLOCK_C"] // 256))
    return Launch(mix_backward_kernel, (len(inputs.index),), args, Blocks(1, warps=warps))


def _common(inputs: Inputs, results: Results, edges: Sequence[int], pointers: Sequence[int]) -> dict[str, Any]:
    first, count = edge_table(tuple(edges), tuple(pointers), inputs.index.device)
    return vars(inputs) | results._asdict() | {
        "first": first, "count": count, "M": inputs.index.size(1), "E": len(first),
        "MOST": max(pointers), "C": results.scale.size(1), "S": results.out_index.size(2),
    }  # fmt: skip


@lru_cache(maxsize=64)
def edge_table(edges: tuple[int, ...], pointers: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each edge's candidates begin, and their number (int32)."""
    count = torch.tensor(pointers, dtype=torch.int32).repeat_interleave(torch.tensor(edges))
    first = count.cumsum(0, dtype=torch.int32) - count
    return first.to(device), count.to(device)

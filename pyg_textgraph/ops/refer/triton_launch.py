"""Which kernels referral runs on what, without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
from torch import Tensor

from pyg_textgraph.ops.launch import Blocks, Launch
from pyg_textgraph.ops.refer.triton_kernels import chunk_kernel, list_kernel, next_kernel, refer_kernel
from pyg_textgraph.ops.reverse_index import CHUNK, ReverseIndex
from pyg_textgraph.ops.sparsify.triton_launch import blocks_of


@dataclass(frozen=True)
class Steps:
    """**index**, **weight** (B, n, K, s2); **next_index**, **next_weight** (B, N, K, s3)."""

    index: Tensor
    weight: Tensor
    next_index: Tensor
    next_weight: Tensor


class Results(NamedTuple):
    """**out_index**, **out_weight** (B, n, K, s), **total** (B, n, K)."""

    out_index: Tensor
    out_weight: Tensor
    total: Tensor


def refer_launch(steps: Steps, results: Results) -> Launch:
    """Fills the results."""
    args = _common(steps, results)
    size, s = triton.next_power_of_2(args["S2"] * args["S3"]), args["S"]
    blocks = blocks_of(size)
    args |= {"BLOCK_M": size, "BLOCK_S": triton.next_power_of_2(s), "ROWS": blocks.rows}
    return Launch(refer_kernel, (triton.cdiv(args["lists"], blocks.rows),), args, blocks)


def backward_launches(
    steps: Steps, results: Results, grad: Tensor, dweight: Tensor, dnext: Tensor, reverse: ReverseIndex
) -> list[Launch]:
    """Fill **dweight** (B, n, K, s2) and **dnext** (B, N, K, s3), in this order; by **reverse**."""
    args = _common(steps, results)
    s3 = args["S3"]
    size = triton.next_power_of_2(s3)
    step = results.total.new_empty(*steps.weight.shape, s3)
    blocks = Blocks(max(1, 512 // size))
    lists = args | {"grad": grad, "dweight": dweight, "step": step, "BLOCK_S3": size, "ROWS": blocks.rows}
    launches = [Launch(list_kernel, (triton.cdiv(args["lists"], blocks.rows),), lists, blocks)]

    partial = step.new_empty(reverse.num_chunks, s3)
    rows = steps.next_index.shape[:3].numel()
    blocks = Blocks(max(1, 128 // size), keys=4)
    shared: dict[str, Any] = {"step": step, "pointer": reverse.pointer, "partial": partial, "rows": rows, "S3": s3}
    shared |= {"BLOCK_S3": size, "CHUNK": CHUNK, "ROWS": blocks.rows, "POINTERS": blocks.keys}
    chunks = {"named": reverse.row, "chunks": reverse.num_chunks}
    launches.append(Launch(chunk_kernel, (triton.cdiv(reverse.num_chunks, blocks.rows),), shared | chunks, blocks))
    to = {"start": reverse.start, "dnext": dnext}
    return [*launches, Launch(next_kernel, (triton.cdiv(rows, blocks.rows),), shared | to, blocks)]


def _common(steps: Steps, results: Results) -> dict[str, Any]:
    batch, queries, channels, s2 = steps.index.shape
    return vars(steps) | results._asdict() | {
        "lists": batch * queries * channels, "queries": queries, "keys": steps.next_index.size(1),
        "K": channels, "S2": s2, "S3": steps.next_index.size(-1), "S": results.out_index.size(-1),
    }  # fmt: skip

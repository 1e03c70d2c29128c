"""Which kernels sparsify runs on what, without running anything."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from pyg_textgraph.ops.launch import Blocks, Launch
from pyg_textgraph.ops.sparsify.triton_kernels import sparsify_backward_kernel, sparsify_kernel


def blocks_of(candidates: int) -> Blocks:
    """Lists per program: all comparisons inside a list are held in registers."""
    return Blocks(max(1, min(64, 4096 // candidates**2)))


def sparsify_launch(index: Tensor, weight: Tensor, out_index: Tensor, out_weight: Tensor, total: Tensor) -> Launch:
    """From **index**, **weight** (n, m) fills **out_index**, **out_weight** (n, s) and **total** (n)."""
    (n, m), s = index.shape, out_index.size(1)
    size = triton.next_power_of_2(m)
    blocks = blocks_of(size)
    args: dict[str, Any] = {
        "index": index,
        "weight": weight,
        "out_index": out_index,
        "out_weight": out_weight,
        "total": total,
    }
    args |= {"lists": n, "M": m, "BLOCK_M": size, "S": s, "BLOCK_S": triton.next_power_of_2(s), "ROWS": blocks.rows}
    return Launch(sparsify_kernel, (triton.cdiv(n, blocks.rows),), args, blocks)


def sparsify_backward_launch(
    index: Tensor, out_index: Tensor, out_weight: Tensor, grad: Tensor, total: Tensor, dweight: Tensor
) -> Launch:
    """Fills **dweight** (n, m)."""
    (n, m), s = index.shape, out_index.size(1)
    size = triton.next_power_of_2(m)
    blocks = Blocks(max(1, 1024 // size))
    args: dict[str, Any] = {
        "index": index,
        "out_index": out_index,
        "out_weight": out_weight,
        "grad": grad,
        "total": total,
    }
    args |= {"dweight": dweight, "lists": n, "M": m, "BLOCK_M": size, "S": s, "ROWS": blocks.rows}
    return Launch(sparsify_backward_kernel, (triton.cdiv(n, blocks.rows),), args, blocks)

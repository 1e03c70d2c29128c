"""Sparsify by one sort of the indices, in blocks of rows."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_textgraph.ops.blocks import for_each_block
from pyg_textgraph.ops.sparsify.select import heaviest


def runs(index: Tensor) -> tuple[Tensor, Tensor]:
    """Brings equal indices of a row together.

    Shapes:
        - **index** (n, m)
        - **returns** the stable order (n, m) that sorts a row, and where along it each entry's run begins (n, m)
    """
    place = torch.arange(index.size(-1), device=index.device)
    value, order = index.sort(dim=-1, stable=True)
    fresh = torch.ones_like(value, dtype=torch.bool)
    fresh[:, 1:] = value[:, 1:] != value[:, :-1]
    return order, torch.where(fresh, place, 0).cummax(-1).values


class Sparsify(torch.autograd.Function):
    """`sparsify` on rows; the gradient passes through the kept weights, all duplicates included."""

    @staticmethod
    def forward(ctx: Any, index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor]:
        n, m = index.shape
        first = torch.empty_like(index, dtype=torch.int32)
        kept = torch.empty(n, s, dtype=torch.int32, device=index.device)
        out_index, out_weight = index.new_empty(n, s), weight.new_empty(n, s)
        total = weight.new_empty(n, 1)

        def block(rows: slice) -> None:
            order, run = runs(index[rows])
            place = torch.empty_like(order).scatter_(-1, order, order.gather(-1, run))  # first with the same index
            merged = torch.zeros_like(weight[rows]).scatter_add_(-1, place, weight[rows])
            value, position = heaviest(merged.T.contiguous(), s, 0)  # lists side by side: one vector lane each
            value, position = value.T, position.T
            total[rows] = value.sum(-1, keepdim=True)
            out_weight[rows] = value / total[rows].clamp(min=1e-8)
            out_index[rows] = index[rows].gather(-1, position).masked_fill_(value == 0, 0)
            first[rows], kept[rows] = place, position

        for_each_block(block, n, m, index.device)
        ctx.save_for_backward(first, kept, out_weight, total)
        ctx.mark_non_differentiable(out_index)
        ctx.set_materialize_grads(False)
        return out_index, out_weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None, grad: Tensor | None) -> tuple[None, Tensor | None, None]:
        if grad is None:
            return None, None, None
        first, kept, out_weight, total = ctx.saved_tensors
        # a sum below 1e-8 is clamped, hence constant
        mean = torch.where(total > 1e-8, (grad * out_weight).sum(-1, keepdim=True), 0)
        grad = ((grad - mean) / total.clamp(min=1e-8)).masked_fill(out_weight == 0, 0)
        at_first = grad.new_zeros(first.shape).scatter_add_(-1, kept.long(), grad)
        return None, at_first.gather(-1, first.long()), None


def sparsify_blocked(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor]:
    """As `sparsify_reference`, with memory for a block of rows at a time."""
    m, dtype = index.size(-1), weight.dtype
    wide = weight.float() if dtype.itemsize < 4 else weight
    out_index, out_weight = Sparsify.apply(index.reshape(-1, m), wide.reshape(-1, m), s)
    shape = (*index.shape[:-1], s)
    return out_index.view(shape), out_weight.view(shape).to(dtype)

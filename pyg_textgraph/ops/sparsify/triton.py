"""Sparsify as an operator of torch, computed by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.ops.sparsify.triton_launch import sparsify_backward_launch, sparsify_launch
from pyg_textgraph.ops.triton_limits import unsupported_list, unsupported_tensors


def run(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor]:
    """Arguments and results as of :func:`~pyg_textgraph.ops.sparsify`; weights add up in float32.

    Shapes:
        - **index**, **weight** (\\*, m)
        - **returns** (\\*, s) each
    """
    m, shape = index.size(-1), (*index.shape[:-1], s)
    rows = index.shape[:-1].numel()
    out_index, out_weight, _ = _sparsify(index.int().reshape(rows, m), weight.reshape(rows, m), s)
    return out_index.view(shape).to(index.dtype), out_weight.view(shape).to(weight.dtype)


def unsupported(index: Tensor, weight: Tensor, s: int) -> str | None:
    """Why the kernels cannot take these tensors, or None."""
    if reason := unsupported_tensors({"weight": weight}, counted={"weight": weight[..., :1]}):
        return reason
    return unsupported_list(index.size(-1), s)


@torch.library.custom_op("pyg_textgraph::sparsify", mutates_args=())
def _sparsify(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor, Tensor]:
    """Index and weight (n, s), float32, and what the weights were divided by (n)."""
    results = _results_like(index, weight, s)
    sparsify_launch(index.contiguous(), weight.contiguous(), *results)()
    return results


@torch.library.custom_op("pyg_textgraph::sparsify_backward", mutates_args=())
def _sparsify_backward(
    grad: Tensor, out_index: Tensor, out_weight: Tensor, total: Tensor, index: Tensor, weight: Tensor
) -> Tensor:
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    sparsify_backward_launch(index.contiguous(), out_index, out_weight, grad.contiguous(), total, dweight)()
    return dweight


def _results_like(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor, Tensor]:
    n = len(index)
    kept, total = (weight.new_empty(shape, dtype=torch.float32) for shape in ((n, s), (n,)))
    return index.new_empty(n, s), kept, total


@_sparsify.register_fake
def _(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor, Tensor]:
    return _results_like(index, weight, s)


@_sparsify_backward.register_fake
def _(grad: Tensor, out_index: Tensor, out_weight: Tensor, total: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:2])
    ctx.mark_non_differentiable(output[0], output[2])


def _backward(ctx: Any, _: Tensor, grad: Tensor, __: Tensor) -> tuple[None, Tensor, None]:
    return None, _sparsify_backward(grad, *ctx.saved_tensors), None


_sparsify.register_autograd(_backward, setup_context=_setup)

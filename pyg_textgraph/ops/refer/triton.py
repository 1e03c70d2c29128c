"""Referral as an operator of torch, computed by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.ops.refer.triton_launch import Results, Steps, backward_launches, refer_launch
from pyg_textgraph.ops.reverse_index import named_rows, reverse_index
from pyg_textgraph.ops.triton_limits import unsupported_list, unsupported_tensors


def run(index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int) -> tuple[Tensor, Tensor]:
    """Arguments and results as of :func:`~pyg_textgraph.ops.refer`; weights add up in float32 and in a fixed order.

    Ties go to the first pointer of the first pointer. A pointer that names no token gives NaN.

    Shapes:
        - **index**, **weight** (\\*, n, k, s2); **next_index**, **next_weight** (\\*, N, k, s3)
        - **returns** (\\*, n, k, s) each
    """
    shape = (*index.shape[:-1], s)
    steps = (x.flatten(0, -4) if x.dim() > 3 else x[None] for x in (index.int(), weight, next_index.int(), next_weight))
    out_index, out_weight, _ = _refer(*steps, s)
    dtype = torch.promote_types(weight.dtype, next_weight.dtype)
    return out_index.view(shape).to(next_index.dtype), out_weight.view(shape).to(dtype)


def unsupported(index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int) -> str | None:
    """Why the kernels cannot take these tensors, or None."""
    floats = {"weight": weight, "next_weight": next_weight}
    if reason := unsupported_tensors(floats, counted={"index": index, "next_index": next_index}):
        return reason
    return unsupported_list(index.size(-1) * next_index.size(-1), s)


@torch.library.custom_op("pyg_textgraph::refer", mutates_args=())
def _refer(
    index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Index and weight (B, n, K, s), float32, and what the weights were divided by (B, n, K)."""
    results = _results_like(index, weight, s)
    refer_launch(Steps(*(x.contiguous() for x in (index, weight, next_index, next_weight))), results)()
    return results


@torch.library.custom_op("pyg_textgraph::refer_backward", mutates_args=())
def _refer_backward(
    grad: Tensor, out_index: Tensor, out_weight: Tensor, total: Tensor,
    index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients to both weights."""
    steps = Steps(*(x.contiguous() for x in (index, weight, next_index, next_weight)))
    dweight, dnext = torch.empty_like(steps.weight), torch.empty_like(steps.next_weight)
    reverse = reverse_index(*named_rows(index, weight == 0, next_index.size(1)))
    results = Results(out_index, out_weight, total)
    for launch in backward_launches(steps, results, grad.contiguous(), dweight, dnext, reverse):
        launch()
    return dweight, dnext


def _results_like(index: Tensor, weight: Tensor, s: int) -> Results:
    shape = index.shape[:-1]
    kept, total = (weight.new_empty(x, dtype=torch.float32) for x in ((*shape, s), shape))
    return Results(index.new_empty(*shape, s), kept, total)


@_refer.register_fake
def _(index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int) -> tuple[Tensor, Tensor, Tensor]:
    return _results_like(index, weight, s)


@_refer_backward.register_fake
def _(grad: Tensor, out_index: Tensor, out_weight: Tensor, total: Tensor, *steps: Tensor) -> tuple[Tensor, Tensor]:
    _, weight, _, next_weight = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in steps)
    return weight, next_weight


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:4])
    ctx.mark_non_differentiable(output[0], output[2])


def _backward(ctx: Any, _: Tensor, grad: Tensor, __: Tensor) -> tuple[Tensor | None, ...]:
    dweight, dnext = _refer_backward(grad, *ctx.saved_tensors)
    return None, dweight, None, dnext, None


_refer.register_autograd(_backward, setup_context=_setup)

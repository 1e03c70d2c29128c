"""Edge attention as an operator of torch, computed by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.ops.edge_attention.triton_launch import Gradients, Inputs, attend_launch, backward_launches
from pyg_textgraph.ops.reverse_index import named_rows, reverse_index
from pyg_textgraph.ops.triton_limits import unsupported_tensors

MAX_CHANNELS, MAX_LIST = 256, 8192  # channels of a head, and of all keys of a list together


def run(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_temperature: Tensor, edge_temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """Arguments and results as of :func:`~pyg_textgraph.ops.edge_attention`; the attention is float32.

    Everything adds up in float32 and in a fixed order. A pointer that names no token gives NaN.

    Shapes:
        - **q** (\\*, n, h, d); **k**, **v** (\\*, N, g, d); **index**, **weight** (\\*, n, g, s)
        - **node_temperature** (\\*, n, h), **edge_temperature** (\\*, n, g)
        - **returns** (\\*, n, h, d) and (\\*, n, h, s)
    """
    heads = node_temperature.flatten(0, -3) if q.dim() > 3 else node_temperature[None]
    groups = edge_temperature.flatten(0, -3) if q.dim() > 3 else edge_temperature[None]
    q4, k, v, index, weight = (x.flatten(0, -4) if q.dim() > 3 else x[None] for x in (q, k, v, index, weight))
    out, attention = _attend(q4, k, v, index.int(), weight, heads, groups)
    return out.view(q.shape), attention.view(*q.shape[:-1], index.size(-1))


def unsupported(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_temperature: Tensor, edge_temperature: Tensor
) -> str | None:
    """Why the kernels cannot take these tensors, or None."""
    tensors = {"q": q, "k": k, "v": v, "weight": weight}
    tensors |= {"node_temperature": node_temperature, "edge_temperature": edge_temperature}
    if reason := unsupported_tensors(tensors, counted={"index": index, "k": k[..., 0]}):
        return reason
    if q.size(-1) > MAX_CHANNELS:
        return f"takes at most {MAX_CHANNELS} channels per head, 'q' has {q.size(-1)}"
    most = MAX_LIST // (1 << (q.size(-1) - 1).bit_length())
    if index.size(-1) > most:
        return f"takes at most {most} pointers per list for heads of {q.size(-1)} channels, got {index.size(-1)}"
    return None


@torch.library.custom_op("pyg_textgraph::edge_attention", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_tau: Tensor, edge_tau: Tensor
) -> tuple[Tensor, Tensor]:
    """Output (B, n, H, D) and attention (B, n, H, S)."""
    out, attention = _results_like(q, index)
    inputs = Inputs(*(x.contiguous() for x in (q, k, v, index, weight, node_tau, edge_tau)))
    attend_launch(inputs, out, attention)()
    return out, attention


@torch.library.custom_op("pyg_textgraph::edge_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, grad_attention: Tensor, attention: Tensor,
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_tau: Tensor, edge_tau: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v, weight and both temperatures."""
    inputs = Inputs(*(x.contiguous() for x in (q, k, v, index, weight, node_tau, edge_tau)))
    differentiable = (q, k, v, weight, node_tau, edge_tau, attention)
    gradients = Gradients(*(torch.empty_like(x, memory_format=torch.contiguous_format) for x in differentiable))
    reverse = reverse_index(*named_rows(index, weight <= 0, k.size(1)))
    grad, grad_attention = grad.contiguous(), grad_attention.contiguous()
    for launch in backward_launches(inputs, attention, grad, grad_attention, gradients, reverse):
        launch()
    return gradients[:6]


def _results_like(q: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(*q.shape[:-1], index.size(-1), dtype=torch.float32)


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, index: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    return _results_like(q, index)


@_attend_backward.register_fake
def _(
    grad: Tensor,
    grad_attention: Tensor,
    attention: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    *rest: Tensor,
) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, *rest))


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs)


def _backward(ctx: Any, grad: Tensor, grad_attention: Tensor) -> tuple[Tensor | None, ...]:
    dq, dk, dv, dweight, dnode, dedge = _attend_backward(grad, grad_attention, *ctx.saved_tensors)
    return dq, dk, dv, None, dweight, dnode, dedge


_attend.register_autograd(_backward, setup_context=_setup)

"""Graph attention as an operator of torch, computed by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.triton_launch import Options, backward_launches, forward_launch
from pyg_textgraph.ops.graph_attention.triton_listed_launch import listed_backward_launches, listed_forward_launch
from pyg_textgraph.ops.graph_attention.triton_lists import ListPlan
from pyg_textgraph.ops.graph_attention.triton_plan import TilePlan, tile_plan
from pyg_textgraph.ops.triton_limits import unsupported_tensors

MAX_CHANNELS = 256


def run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: TokenLayout,
    bias: Tensor | None = None,
    *,
    pairs: Tensor | None = None,
    visible: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Softmax attention with a bias per pair of nodes; arguments as :func:`~pyg_textgraph.ops.graph_attention`.

    The products run in the inputs' precision and add up in float32; every sum has a fixed order.

    Shapes:
        - **q** (T, H, D); **k**, **v** (T, H_kv, D), H a multiple of H_kv
        - **bias** (B, H, N, N), row = query's node, the diagonal is ignored; with **pairs** (2, P): (H, P)
        - **returns** (T, H, D)
    """
    scale = q.size(-1) ** -0.5 if scale is None else scale
    tokens = (layout.graph_ptr, layout.node, layout.position, layout.is_target, layout.num_nodes, layout.mode)
    out, _ = _attention(q, k, v, bias, visible, pairs, *tokens, scale, softcap, window)
    return out


def unsupported(q: Tensor, k: Tensor, v: Tensor, layout: TokenLayout, bias: Tensor | None = None) -> str | None:
    """Why the kernels cannot take these queries and this bias, or None."""
    if reason := unsupported_tensors({"q": q}, counted={}):
        return reason
    if q.size(-1) > MAX_CHANNELS:
        return f"takes at most {MAX_CHANNELS} channels per head, 'q' has {q.size(-1)}"
    if bias is not None and (bias.numel() if bias.dim() == 2 else bias.size(-1) ** 2) >= 2**31:
        return f"counts the bias in 32 bits, which shape {tuple(bias.shape)} exceeds"
    return None


def _readable(
    bias: Tensor | None, visible: Tensor | None, lists: ListPlan | None
) -> tuple[Tensor | None, ListPlan | None]:
    """The bias as the kernels read it, and the lists to walk, or None where most tokens see each other anyway.

    Without lists, hiding is a bias of −∞, so that one read per score does for both: (B, H or 1, N, N).
    """
    if lists is not None and not lists.crowded:
        return None if bias is None else bias.contiguous(), lists
    if lists is not None:
        bias, visible = lists.to_dense(bias)
    if visible is None:
        return None if bias is None else bias.contiguous(), None
    full = visible.new_zeros((), dtype=torch.float32) if bias is None else bias
    return torch.where(visible[:, None], full, -torch.inf).contiguous(), None


def _plans(
    pairs: Tensor | None, graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, num_nodes: Tensor,
    mode: str,
) -> tuple[TilePlan, ListPlan | None]:  # fmt: skip
    plan = tile_plan(graph_ptr, node, position, is_target, mode)
    if pairs is None:
        return plan, None
    return plan, plan.lists(TokenLayout(node, graph_ptr, node, position, is_target, num_nodes, mode), pairs)  # type: ignore[arg-type]


@torch.library.custom_op("pyg_textgraph::graph_attention", mutates_args=())
def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None, pairs: Tensor | None,
    graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, num_nodes: Tensor, mode: str,
    scale: float, softcap: float | None, window: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (T, H, D) and log-sum-exp (H, T), in base 2."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out, lse = torch.empty_like(q), q.new_empty(q.size(1), q.size(0), dtype=torch.float32)
    plan, listed = _plans(pairs, graph_ptr, node, position, is_target, num_nodes, mode)
    options, (bias, lists) = Options(scale, softcap, window), _readable(bias, visible, listed)
    if lists is None:
        forward_launch(q, k, v, bias, out, lse, plan, options)()
    else:
        listed_forward_launch(q, k, v, bias, out, lse, plan, lists, options)()
    return out, lse


@torch.library.custom_op("pyg_textgraph::graph_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor, out: Tensor, lse: Tensor,
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None, pairs: Tensor | None,
    graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, num_nodes: Tensor, mode: str,
    scale: float, softcap: float | None, window: int | None, bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v and bias; the last is empty unless ``bias_grad``."""
    q, k, v, grad = q.contiguous(), k.contiguous(), v.contiguous(), grad.contiguous()
    dq, dk, dv, dbias = _gradients_like(q, k, v, bias, bias_grad)
    if q.size(0) == 0:
        return dq, dk, dv, dbias.zero_()  # no tokens, no segments to sum
    plan, listed = _plans(pairs, graph_ptr, node, position, is_target, num_nodes, mode)
    options, (readable, lists) = Options(scale, softcap, window), _readable(bias, visible, listed)
    crowded = bias_grad and listed is not None and lists is None
    to = torch.empty_like(readable) if crowded and readable is not None else dbias if bias_grad else None
    tensors = (q, k, v, readable, out, lse, grad, dq, dk, dv, to)
    if lists is None:
        launches = backward_launches(*tensors, plan, options)
    else:
        launches = listed_backward_launches(*tensors, plan, lists, options)
    for launch in launches:
        launch()
    if crowded and listed is not None and to is not None:
        dbias.copy_(listed.from_dense(to))
    return dq, dk, dv, dbias


def _gradients_like(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, bias_grad: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    if bias is None or not bias_grad:
        return dq, dk, dv, q.new_empty(0)
    return dq, dk, dv, torch.empty_like(bias, memory_format=torch.contiguous_format)


@_attention.register_fake
def _(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(q.size(1), q.size(0), dtype=torch.float32)


@_attention_backward.register_fake
def _(
    grad: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients_like(q, k, v, bias, rest[-1])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, mode, scale, softcap, window = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])
    ctx.options = mode, scale, softcap, window


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    bias_grad = ctx.needs_input_grad[3]
    dq, dk, dv, dbias = _attention_backward(grad, *ctx.saved_tensors, *ctx.options, bias_grad)
    return dq, dk, dv, dbias if bias_grad else None, *[None] * 11


_attention.register_autograd(_backward, setup_context=_setup)

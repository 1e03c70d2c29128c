"""Graph attention as an operator of torch, computed by Triton kernels."""

import torch
import triton
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.reference import dense_pairs
from pyg_textgraph.ops.graph_attention.triton_launch import Options, backward_launches, forward_launch
from pyg_textgraph.ops.graph_attention.triton_plan import tile_plan

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_CHANNELS = 256


def graph_attention_triton(
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

    Raises:
        ValueError: If the kernels cannot do it: see :func:`unsupported`.
    """
    if reason := unsupported(q):
        raise ValueError(f"graph_attention: backend 'triton' {reason}; use 'blocked'")
    if pairs is not None:
        bias, visible = dense_pairs(pairs, bias, layout.num_nodes)
    scale = q.size(-1) ** -0.5 if scale is None else scale
    tokens = (layout.graph_ptr, layout.node, layout.position, layout.is_target, layout.mode)
    out, _ = _attention(q, k, v, bias, visible, *tokens, scale, softcap, window)
    return out


def unsupported(q: Tensor) -> str | None:
    """Why the kernels cannot take these queries, or None."""
    if not (q.is_cuda or triton.knobs.runtime.interpret):
        return f"needs tensors on a CUDA device, 'q' is on {q.device}"
    if q.dtype not in DTYPES:
        return f"takes float16, bfloat16 and float32, 'q' is {q.dtype}"
    if q.size(-1) > MAX_CHANNELS:
        return f"takes at most {MAX_CHANNELS} channels per head, 'q' has {q.size(-1)}"
    return None


def _hide(bias: Tensor | None, visible: Tensor | None) -> Tensor | None:
    """The bias (B, H or 1, N, N), −∞ where a node does not see another: one read per score for both."""
    if visible is None:
        return None if bias is None else bias.contiguous()
    hidden = ~visible[:, None]
    return (
        torch.zeros_like(hidden, dtype=torch.float32).masked_fill_(hidden, -torch.inf)
        if bias is None
        else (bias.masked_fill(hidden, -torch.inf).contiguous())
    )


@torch.library.custom_op("pyg_textgraph::graph_attention", mutates_args=())
def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None, graph_ptr: Tensor, node: Tensor,
    position: Tensor, is_target: Tensor, mode: str, scale: float, softcap: float | None, window: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (T, H, D) and log-sum-exp (H, T), in base 2."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    bias = _hide(bias, visible)
    out, lse = torch.empty_like(q), q.new_empty(q.size(1), q.size(0), dtype=torch.float32)
    plan = tile_plan(graph_ptr, node, position, is_target, mode)
    forward_launch(q, k, v, bias, out, lse, plan, Options(scale, softcap, window))()
    return out, lse


@torch.library.custom_op("pyg_textgraph::graph_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
    visible: Tensor | None, graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, mode: str,
    scale: float, softcap: float | None, window: int | None, bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v and bias; the last is empty unless ``bias_grad``."""
    q, k, v, grad = q.contiguous(), k.contiguous(), v.contiguous(), grad.contiguous()
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dbias = torch.empty_like(bias, memory_format=torch.contiguous_format) if bias is not None and bias_grad else None
    bias = _hide(bias, visible)
    if dbias is not None and q.size(0) == 0:
        dbias.zero_()  # without tokens there are no segments to sum
    elif q.size(0):
        plan = tile_plan(graph_ptr, node, position, is_target, mode)
        options = Options(scale, softcap, window)
        for launch in backward_launches(
            q, k, v, bias, out, lse, grad, dq, dk, dv, dbias, plan, options
        ):  # fmt: skip
            launch()
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


@_attention.register_fake
def _(q, k, v, bias, visible, *_):  # type: ignore[no-untyped-def]
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(
        q.size(1), q.size(0), dtype=torch.float32
    )


@_attention_backward.register_fake
def _(grad, out, lse, q, k, v, bias, *rest):  # type: ignore[no-untyped-def]
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    bias_grad = rest[-1]
    dbias = torch.empty_like(bias, memory_format=torch.contiguous_format) if bias_grad else q.new_empty(0)
    return dq, dk, dv, dbias


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    *tensors, mode, scale, softcap, window = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])
    ctx.options = mode, scale, softcap, window


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    bias_grad = ctx.needs_input_grad[3]
    dq, dk, dv, dbias = _attention_backward(grad, *ctx.saved_tensors, *ctx.options, bias_grad)
    return dq, dk, dv, dbias if bias_grad else None, *[None] * 9


_attention.register_autograd(_backward, setup_context=_setup)

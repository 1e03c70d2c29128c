"""Graph attention in plain torch operations, piece by piece: any device, memory linear in the number of tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.pieces import Piece, Plan
from pyg_textgraph.ops.graph_attention.plan import plan_of


def graph_attention_blocked(
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

    Shapes:
        - **q** (T, H, D); **k**, **v** (T, H_kv, D), H a multiple of H_kv
        - **bias** (B, H, N, N), row = query's node, the diagonal is ignored; with **pairs** (2, P): (H, P)
        - **returns** (T, H, D)
    """
    plan = plan_of(layout, pairs, visible, window, q.size(1))
    out: Tensor = _Attention.apply(q, k, v, bias, plan, q.size(-1) ** -0.5 if scale is None else scale, softcap)
    return out


class _Attention(torch.autograd.Function):
    """Keeps only its inputs; the backward pass computes each piece's probabilities again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, plan: Plan, scale: float, softcap: float | None
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, bias)
        ctx.plan, ctx.scale, ctx.softcap = plan, scale, softcap
        with torch.autocast(q.device.type, enabled=False):
            heads = k.size(1)
            q, k, v = _by_head(q, heads), _by_head(k, heads)[:, :, 0], _by_head(v, heads)[:, :, 0]
            bias, out = plan.pad(bias, q), torch.empty_like(q)
            buffer = _buffer(plan, q)
            for piece in plan.pieces:
                weight, _ = _weights(piece, piece.rows(q), piece.keys(k), bias, buffer, scale, softcap)
                piece.set_rows(out, weight @ piece.keys(v))
            return _by_token(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        plan, scale, softcap = ctx.plan, ctx.scale, ctx.softcap
        with torch.autocast(q.device.type, enabled=False):
            heads, dtype, exact = k.size(1), k.dtype, torch.promote_types(k.dtype, torch.float32)
            q, grad, k, v = _by_head(q, heads), _by_head(grad, heads), *(_by_head(x, heads)[:, :, 0] for x in (k, v))
            padded = plan.pad(bias, q)
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k, dtype=exact), torch.zeros_like(v, dtype=exact)
            dbias = torch.zeros_like(padded, dtype=exact) if ctx.needs_input_grad[3] else None
            buffer, dbuffer = _buffer(plan, q), _buffer(plan, q)
            for piece in plan.pieces:
                row, key, dout = piece.rows(q), piece.keys(k), piece.rows(grad)
                weight, capped = _weights(piece, row, key, padded, buffer, scale, softcap)
                piece.add_keys(dv, weight.mT @ dout)
                dscore = _product(dout, piece.keys(v).mT, 1, dbuffer)
                # dS = P∘(dP − D) in one pass; D is the sum of P∘dP over a row
                torch.ops.aten._softmax_backward_data(dscore, weight, -1, dtype, grad_input=dscore)
                if dbias is not None:
                    piece.add_spread(dbias, dscore)
                if capped is not None:
                    dscore *= 1 - capped.square()
                piece.set_rows(dq, _product(dscore, key, scale))
                piece.add_keys(dk, _product(dscore.mT, row, scale))
            dbias = None if dbias is None else plan.unpad(dbias).to(bias.dtype)
            return _by_token(dq), *(_by_token(x[:, :, None].to(dtype)) for x in (dk, dv)), dbias, None, None, None


def _weights(
    piece: Piece, q: Tensor, k: Tensor, bias: Tensor | None, buffer: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Attention probabilities (b, R·G, L), and tanh of the capped scores."""
    score = _view(buffer, q.size(0), q.size(1), k.size(1))
    capped = None
    if bias is not None:
        piece.spread(bias, score)
    if softcap is None:
        torch.baddbmm(score, q, k.mT, beta=float(bias is not None), alpha=scale, out=score)
    else:
        capped = torch.baddbmm(q.new_empty(1), q, k.mT, beta=0, alpha=scale / softcap).tanh_()
        torch.add(0 if bias is None else score, capped, alpha=softcap, out=score)
    piece.hide(score)
    return torch.softmax(score, dim=-1, out=score), capped


def _product(a: Tensor, b: Tensor, scale: float, buffer: Tensor | None = None) -> Tensor:
    out = None if buffer is None else _view(buffer, a.size(0), a.size(1), b.size(2))
    return torch.baddbmm(a.new_empty(1), a, b, beta=0, alpha=scale, out=out)


def _buffer(plan: Plan, like: Tensor) -> Tensor:
    """Room for the scores of any piece, taken once: fresh pages cost as much as a product."""
    pairs = max((math.prod(piece.size) for piece in plan.pieces), default=0)
    return like.new_empty(like.size(0) * like.size(2) * pairs)


def _view(buffer: Tensor, *size: int) -> Tensor:
    return buffer[: math.prod(size)].view(size)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """(T, H, D) to (H_kv, T + 1, G, D), with a last place of zeros for padding."""
    size, _, channels = x.shape
    out = x.new_empty(heads, size + 1, x.size(1) // heads, channels)
    out[:, :-1] = x.unflatten(1, (heads, -1)).transpose(0, 1)
    out[:, -1] = 0
    return out


def _by_token(x: Tensor) -> Tensor:
    """Inverse of :func:`_by_head`."""
    return x[:, :-1].transpose(0, 1).flatten(1, 2)

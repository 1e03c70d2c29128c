"""Graph attention in plain torch operations, piece by piece: any device, memory linear in the number of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.blocks import for_each
from pyg_textgraph.ops.graph_attention.pieces import Piece
from pyg_textgraph.ops.graph_attention.plan import plan_of
from pyg_textgraph.ops.graph_attention.plans import Group, Plan


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
    plan = plan_of(layout, pairs, visible, window, (q.size(1), k.size(1)))
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
        q, k, v = (_shared(x, k) for x in (q, k, v))
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)

        def begin(group: Group) -> _Room:
            return _room(plan, group, q, k, v, bias, out)

        def work(room: _Room, unit: int, pieces: list[Piece]) -> None:
            buffer = _buffer(pieces, room.q)
            for piece in pieces:
                row, key = piece.rows(room.q), piece.keys(room.k)
                weight, _ = _weights(piece, row, key, room.bias, buffer, scale, softcap)
                piece.set_rows(room.out, torch.bmm(weight, piece.keys(room.v)))

        def end(room: _Room, group: Group) -> None:
            plan.store(out, room.out, group)

        with torch.autocast(q.device.type, enabled=False):
            _run(plan, q.device, begin, work, end)
        return out.flatten(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        q, k, v, grad = (_shared(x, k) for x in (q, k, v, grad))
        plan, scale, softcap, exact = ctx.plan, ctx.scale, ctx.softcap, torch.promote_types(k.dtype, torch.float32)
        dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
        dbias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None

        def begin(group: Group) -> _Room:
            room = _room(plan, group, q, k, v, bias, dq, grad)
            room.sums = [_Sums(*room.k.new_zeros(2, *room.k.shape, dtype=exact)) for _ in group.units]
            return room

        def work(room: _Room, unit: int, pieces: list[Piece]) -> None:
            buffer, dbuffer, sums = _buffer(pieces, room.q), _buffer(pieces, room.q), room.sums[unit]
            for piece in pieces:
                row, key, dout = piece.rows(room.q), piece.keys(room.k), piece.rows(room.grad)
                weight, capped = _weights(piece, row, key, room.bias, buffer, scale, softcap)
                piece.add_keys(sums.dv, torch.bmm(weight.mT, dout))
                dscore = torch.bmm(dout, piece.keys(room.v).mT, out=_view(dbuffer, *weight.shape))
                # dS = P∘(dP − D) in one pass; D is the sum of P∘dP over a row
                torch.ops.aten._softmax_backward_data(dscore, weight, -1, weight.dtype, grad_input=dscore)
                if dbias is not None:
                    sums.dbias.append(piece.sum_spread(dscore, q.size(2), exact))
                if capped is not None:
                    dscore *= 1 - capped.square()
                piece.set_rows(room.out, torch.baddbmm(row.new_empty(1), dscore, key, beta=0, alpha=scale))
                piece.add_keys(sums.dk, torch.bmm(dscore.mT, row))

        def end(room: _Room, group: Group) -> None:
            plan.store(dq, room.out, group)
            total = torch.zeros_like(room.k, dtype=exact)
            for x, parts, factor in ((dk, [x.dk for x in room.sums], scale), (dv, [x.dv for x in room.sums], 1)):
                part = group.part(x)[:, :, 0]
                part.copy_(sum(parts[1:], parts[0] if parts else total)[:, : part.size(1)] * factor)
            if dbias is not None and room.bias is not None:
                spread = torch.zeros_like(room.bias, dtype=exact)
                for pieces, sums in zip(group.units, room.sums, strict=True):
                    for piece, x in zip(pieces, sums.dbias, strict=True):
                        piece.add_sums(spread, x)
                plan.unpad(dbias, spread, group)

        with torch.autocast(q.device.type, enabled=False):
            _run(plan, q.device, begin, work, end)
        return *(x.flatten(1, 2) for x in (dq, dk, dv)), dbias, None, None, None


@dataclass
class _Sums:
    """What one unit adds up."""

    dk: Tensor  # [h, S, D]
    dv: Tensor
    dbias: list[Tensor] = field(default_factory=list)  # of each piece


@dataclass
class _Room:
    """What the units of a group share."""

    q: Tensor  # [h, S, G, D]
    k: Tensor  # [h, S, D]
    v: Tensor
    bias: Tensor | None
    out: Tensor  # output or dQ, [h, S, G, D]
    grad: Tensor  # of the output, in the backward pass
    sums: list[_Sums] = field(default_factory=list)


def _run(
    plan: Plan,
    device: torch.device,
    begin: Callable[[Group], _Room],
    work: Callable[[_Room, int, list[Piece]], None],
    end: Callable[[_Room, Group], None],
) -> None:
    """Goes over a plan: threads take whole groups, or their units where there are several."""
    groups = plan.groups
    if all(len(group.units) <= 1 for group in groups):

        def whole(group: Group) -> None:
            room = begin(group)
            for pieces in group.units:
                work(room, 0, pieces)
            end(room, group)

        for_each(whole, groups, device)
        return
    rooms: dict[int, _Room] = {}
    tasks = [(i, unit) for i, group in enumerate(groups) for unit in range(len(group.units))]
    for_each(lambda i: rooms.update({i: begin(groups[i])}), range(len(groups)), device)
    for_each(lambda task: work(rooms[task[0]], task[1], groups[task[0]].units[task[1]]), tasks, device)
    for_each(lambda i: end(rooms.pop(i), groups[i]), range(len(groups)), device)


def _room(
    plan: Plan, group: Group, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor,
    grad: Tensor | None = None,
) -> _Room:  # fmt: skip
    query, key, value = (plan.load(x, group) for x in (q, k, v))
    key, value = key[:, :, 0].contiguous(), value[:, :, 0].contiguous()
    dout = query if grad is None else plan.load(grad, group)
    return _Room(query, key, value, plan.pad(bias, group, query), plan.room(out, group), dout)


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


def _buffer(pieces: list[Piece], like: Tensor) -> Tensor:
    """Room for the scores of any piece, taken once: fresh pages cost as much as a product."""
    pairs = max(math.prod(piece.size) for piece in pieces)
    return like.new_empty(like.size(0) * like.size(2) * pairs)


def _view(buffer: Tensor, *size: int) -> Tensor:
    return buffer[: math.prod(size)].view(size)


def _shared(x: Tensor, k: Tensor) -> Tensor:
    """(T, H, D) as (T, H_kv, G, D)."""
    return x.unflatten(1, (k.size(1), x.size(1) // k.size(1)))

"""Mix in blocks of tokens, with one list of candidates for all channels of a token."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_textgraph.ops.blocks import for_each_block
from pyg_textgraph.ops.sparsify.blocked import runs
from pyg_textgraph.ops.sparsify.select import heaviest


@dataclass(frozen=True)
class Merging:
    """Which candidates of a token hold the same index: the same for every channel, so it is found once.

    Shapes:
        - **index** (n, u) the different indices in order of first appearance, then zeros
        - **slot** (n, m) the place of each candidate's index in that list
        - **members** (n, m) candidates sorted by slot
        - **start** (n, u) where each slot's members begin
    """

    index: Tensor
    slot: Tensor
    members: Tensor
    start: Tensor

    @classmethod
    def of(cls, index: Tensor) -> "Merging":
        place = torch.arange(index.size(1), device=index.device)
        order, run = runs(index)
        is_first = torch.zeros_like(index, dtype=torch.bool).scatter_(1, order.gather(1, run), True)
        rank = is_first.cumsum(-1) - 1  # [n, m], the slot of a first appearance
        sorted_slot = rank.gather(1, order.gather(1, run))  # [n, m], along `order`
        size = (index.size(0), int(rank.max()) + 1 if rank.numel() else 1)
        count = rank.new_zeros(size).scatter_add_(1, sorted_slot, torch.ones_like(rank))
        start = count.cumsum(-1) - count
        slot = torch.empty_like(rank).scatter_(1, order, sorted_slot)
        return cls(
            index=index.new_zeros(size).scatter_(1, slot, index),
            slot=slot,
            members=torch.empty_like(order).scatter_(1, start.gather(1, sorted_slot) + place - run, order),
            start=start,
        )

    def sum(self, x: Tensor) -> Tensor:
        """(n, m, c) -> (n, u, c), the sum over equal indices."""
        n, m, c = x.shape
        row = torch.arange(n, device=x.device).unsqueeze(1) * m
        bags = F.embedding_bag((self.members + row).flatten(), x.view(-1, c), (self.start + row).flatten(), mode="sum")
        return bags.view(n, -1, c)


def _spread(slot: Tensor, x: Tensor) -> Tensor:
    """What each candidate's slot holds, (n, m) and (n, u, c) -> (n, m, c): the transpose of `Merging.sum`."""
    n, u, c = x.shape
    row = torch.arange(n, device=x.device).unsqueeze(1) * u
    return x.view(-1, c).index_select(0, (slot + row).flatten()).view(n, -1, c)


class Mix(torch.autograd.Function):
    """`mix` of flat candidates; `groups` holds (edges, pointers per edge) of each group.

    In log space a contribution to the power of the temperature is exp τ(logit + log weight), and every normalization
    cancels in the last one: a candidate costs one exponential forward and one backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        index: Tensor,
        weight: Tensor,
        logits: Tensor,
        temperature: Tensor,
        s: int,
        groups: list[tuple[int, int]],
    ) -> tuple[Tensor, Tensor]:
        (n, m), channels = index.shape, logits.size(-1)
        temperature = temperature.clamp(min=torch.finfo(temperature.dtype).tiny)  # an empty slot has log weight −∞
        slot = torch.empty(n, m, dtype=torch.int16 if m < 1 << 15 else torch.int32, device=index.device)
        kept = torch.empty(n, s, channels, dtype=slot.dtype, device=index.device)
        out_index, out_weight = index.new_empty(n, s, channels), weight.new_empty(n, s, channels)
        scale = weight.new_empty(n, 1, channels)

        def block(rows: slice) -> None:
            merging = Merging.of(index[rows])
            power, largest = _powers(weight[rows], logits[rows], temperature[rows, None], groups)
            value, position = heaviest(merging.sum(power), s, 1)
            total = value.sum(1, keepdim=True)
            out_weight[rows] = value / total.clamp(min=torch.finfo(total.dtype).tiny)
            chosen = merging.index.gather(1, position.flatten(1)).view_as(position)
            out_index[rows] = chosen.masked_fill_(value == 0, 0)
            slot[rows], kept[rows] = merging.slot, position
            scale[rows] = largest + total.log()  # power / total = exp(τ(logit + log weight) - scale)

        for_each_block(block, n, m * channels, index.device)
        ctx.save_for_backward(weight, logits, temperature, slot, kept, out_weight, scale)
        ctx.groups = groups
        ctx.mark_non_differentiable(out_index)
        ctx.set_materialize_grads(False)
        return out_index, out_weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        weight, logits, temperature, slot, kept, out_weight, scale = ctx.saved_tensors
        d_weight, d_logits, d_temperature = map(torch.empty_like, (weight, logits, temperature))
        (n, m), channels = weight.shape, logits.size(-1)

        def block(rows: slice) -> None:
            w, tau = weight[rows], temperature[rows, None]  # [r, m], [r, 1, c]
            kept_weight = out_weight[rows]
            centred = grad[rows] - (grad[rows] * kept_weight).sum(1, keepdim=True)
            at_slot = w.new_zeros(len(w), m, channels)
            at_slot.scatter_add_(1, kept[rows].long(), centred.masked_fill_(kept_weight == 0, 0))
            share, _ = _powers(w, logits[rows], tau, ctx.groups, scale[rows])
            step = _spread(slot[rows].long(), at_slot).mul_(share)  # [r, m, c], gradient of τ(logit + log w)
            log = w.log().masked_fill_(w <= 0, 0)
            d_weight[rows] = (step @ tau.mT).squeeze(-1).div_(w).masked_fill_(w <= 0, 0)
            per_edge = torch.cat([part.sum(2) for part in _split(step, ctx.groups)], 1)  # [r, e, c]
            d_temperature[rows] = (log.unsqueeze(1) @ step).squeeze(1) + (per_edge * logits[rows]).sum(1)
            d_logits[rows] = per_edge.mul_(tau)

        for_each_block(block, n, m * channels, weight.device)
        return None, d_weight, d_logits, d_temperature, None, None


def _powers(
    weight: Tensor, logits: Tensor, temperature: Tensor, groups: list[tuple[int, int]], scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """exp(τ(logit + log weight) - scale) of candidates (n, m, c), and the scale (n, 1, c): by default the maximum."""
    log = weight.log()
    hot = logits * temperature
    if scale is None:
        best = torch.cat([part.amax(2) for part in _split(log, groups)], 1).unsqueeze(-1)  # [n, e, 1]
        scale = torch.addcmul(hot, best, temperature).amax(1, keepdim=True)
    scale = scale.clamp(min=torch.finfo(scale.dtype).min)  # a token without candidates
    hot = hot - scale
    power = weight.new_empty(*weight.shape, logits.size(-1))
    edge = 0
    for out, part in zip(_split(power, groups), _split(log, groups), strict=True):
        size = part.size(1)
        torch.addcmul(hot[:, edge : edge + size, None], part.unsqueeze(-1), temperature.unsqueeze(1), out=out)
        edge += size
    return power.exp_(), scale


def _split(x: Tensor, groups: list[tuple[int, int]]) -> Iterator[Tensor]:
    """(n, m, …) -> per group (n, edges, pointers, …)."""
    parts = x.split([e * s for e, s in groups], dim=1)
    return (part.unflatten(1, group) for part, group in zip(parts, groups, strict=True))


def mix_blocked(
    edges: Sequence[tuple[Tensor, Tensor]], logits: Tensor, s: int, temperature: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `mix_reference`, with memory for a block of tokens at a time."""
    dtype = edges[0][1].dtype
    work = torch.promote_types(dtype, torch.float32)
    n = math.prod(logits.shape[:-2])
    groups = [(i.size(-2), i.size(-1)) for i, _ in edges]
    index, weight = (
        torch.cat([x.reshape(n, e * p) for x, (e, p) in zip(part, groups, strict=True)], -1)  # [n, m]
        for part in zip(*edges, strict=True)
    )
    heat = torch.ones_like(logits[..., 0, :]) if temperature is None else temperature
    out_index, out_weight = Mix.apply(
        index,
        weight.to(work),
        logits.reshape(n, *logits.shape[-2:]).to(work),
        heat.reshape(n, logits.size(-1)).to(work),
        s,
        groups,
    )
    shape = (*logits.shape[:-2], s, logits.size(-1))
    return out_index.view(shape).mT.contiguous(), out_weight.view(shape).mT.to(dtype)

"""Kernels of mix: one program holds all candidates of a token, for all channels or a block of them.

Candidates stand edge after edge: those of edge e are ``first[e], …, first[e] + count[e] − 1``, at most MOST.
"""

import triton
import triton.language as tl

from pyg_textgraph.ops.sparsify.triton_kernels import as_ranks

TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal float32; a GPU may take smaller ones for zero


@triton.jit
def load_edges(
    first, count, logits, temperature, token, edge, channel, E: tl.constexpr, C: tl.constexpr
):  # fmt: skip
    """Where edges' candidates begin, their number, logits [edges, channels] and temperatures [channels]."""
    start = tl.load(first + edge, mask=edge < E, other=0)
    number = tl.load(count + edge, mask=edge < E, other=0)
    place = (token * E + edge[:, None]) * C + channel[None, :]
    logit = tl.load(logits + place, mask=(edge < E)[:, None] & (channel < C)[None, :], other=0.0).to(tl.float32)
    if temperature is None:
        tau = tl.full([channel.shape[0]], 1.0, tl.float32)
    else:
        tau = tl.load(temperature + token * C + channel, mask=channel < C, other=1.0).to(tl.float32)
    return start, number, logit, tau


@triton.jit
def log_of(weight):
    return tl.log(tl.where(weight < TINY, TINY, weight))


@triton.jit
def mix_kernel(
    index, weight, logits, temperature, first, count, out_index, out_weight, scale,
    M: tl.constexpr, BLOCK_M: tl.constexpr, E: tl.constexpr, EDGES: tl.constexpr, MOST: tl.constexpr,
    C: tl.constexpr, BLOCK_C: tl.constexpr, S: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One program per token and block of channels, which all share what is found out about equal indices.

    ``scale`` (n, C) turns τ(logit + log weight) into the logarithm of a share of what is kept.
    """
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    index += token * M
    weight += token * M
    top = tl.full([BLOCK_C], -float("inf"), tl.float32)
    for low in range(0, E, EDGES):
        edge = low + tl.arange(0, EDGES)
        start, number, logit, tau = load_edges(first, count, logits, temperature, token, edge, channel, E, C)
        heaviest = tl.zeros([EDGES], tl.float32)
        for t in range(MOST):
            heaviest = tl.maximum(heaviest, tl.load(weight + start + t, mask=t < number, other=0.0).to(tl.float32))
        exponent = tau[None, :] * (logit + log_of(heaviest)[:, None])
        top = tl.maximum(top, tl.max(tl.where((heaviest <= 0)[:, None], -float("inf"), exponent), 0))
    top = tl.where(top == -float("inf"), 0.0, top)

    member = tl.arange(0, BLOCK_M)
    candidate = tl.load(index + member, mask=member < M, other=0)
    merged = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    repeats = tl.zeros([BLOCK_M], tl.int32)  # whether an earlier candidate has the same index
    for low in range(0, E, EDGES):
        edge = low + tl.arange(0, EDGES)
        start, number, logit, tau = load_edges(first, count, logits, temperature, token, edge, channel, E, C)
        for t in range(MOST):
            here = t < number
            w = tl.load(weight + start + t, mask=here, other=0.0).to(tl.float32)
            power = tl.exp(tau[None, :] * (logit + log_of(w)[:, None]) - top[None, :])
            power = tl.where((w <= 0)[:, None], 0.0, power)
            same = candidate[:, None] == tl.load(index + start + t, mask=here, other=0)[None, :]
            same = same & here[None, :] & (member < M)[:, None]
            merged = tl.dot(same.to(tl.float32), power, merged, input_precision="ieee")
            repeats |= tl.max((same & ((start + t)[None, :] < member[:, None])).to(tl.int32), 1)
    rank = tl.where((repeats != 0)[:, None], 0, as_ranks(merged))

    slot = tl.arange(0, BLOCK_S)
    kept_rank = tl.zeros([BLOCK_S, BLOCK_C], tl.int32)
    out = (token * C + channel) * S
    for t in range(S):
        best = tl.max(rank, 0)
        place = tl.min(tl.where(rank == best[None, :], member[:, None], BLOCK_M), 0)
        is_chosen = member[:, None] == place[None, :]
        chosen = tl.sum(tl.where(is_chosen, candidate[:, None], 0), 0)
        tl.store(out_index + out + t, tl.where(best > 0, chosen, 0), mask=channel < C)
        kept_rank = tl.where((slot == t)[:, None] & (best > 0)[None, :], best[None, :], kept_rank)
        rank = tl.where(is_chosen, -1, rank)
    kept = kept_rank.to(tl.float32, bitcast=True)
    total = tl.sum(kept, 0)
    total = tl.where(total == 0, 1.0, total)
    mask = (slot < S)[:, None] & (channel < C)[None, :]
    tl.store(out_weight + out[None, :] + slot[:, None], kept / total[None, :], mask=mask)
    tl.store(scale + token * C + channel, top + tl.log(total), mask=channel < C)


@triton.jit
def mix_backward_kernel(
    index, weight, logits, temperature, first, count, out_index, out_weight, scale, grad,
    dweight, dlogits, dtemperature,
    M: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr, MOST: tl.constexpr,
    C: tl.constexpr, BLOCK_C: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """One program per token, for all channels."""
    token = tl.program_id(0).to(tl.int64)
    channel, edge = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_E)
    start, number, logit, tau = load_edges(first, count, logits, temperature, token, edge, channel, E, C)
    shift = tl.load(scale + token * C + channel, mask=channel < C, other=0.0)
    out = (token * C + channel) * S
    mean = tl.zeros([BLOCK_C], tl.float32)
    for i in range(S):
        g = tl.load(grad + out + i, mask=channel < C, other=0.0)
        mean += g * tl.load(out_weight + out + i, mask=channel < C, other=0.0)
    dlogit = tl.zeros([BLOCK_E, BLOCK_C], tl.float32)
    dtau = tl.zeros([BLOCK_C], tl.float32)
    for t in range(MOST):
        place, here = token * M + start + t, t < number
        w = tl.load(weight + place, mask=here, other=0.0).to(tl.float32)
        candidate = tl.load(index + place, mask=here, other=0)
        step = tl.zeros([BLOCK_E, BLOCK_C], tl.float32)
        for i in range(S):
            full = tl.load(out_weight + out + i, mask=channel < C, other=0.0) != 0
            kept = tl.load(out_index + out + i, mask=channel < C, other=0)
            centred = tl.load(grad + out + i, mask=channel < C, other=0.0) - mean
            step = tl.where((candidate[:, None] == kept[None, :]) & full[None, :], centred[None, :], step)
        exponent = logit + log_of(w)[:, None]
        share = tl.exp(tau[None, :] * exponent - shift[None, :])
        step = tl.where((w <= 0)[:, None], 0.0, step * share)  # the gradient of τ(logit + log weight)
        dlogit += step
        dtau += tl.sum(step * exponent, 0)
        dw = tl.sum(step * tau[None, :], 1) / tl.where(w < TINY, TINY, w)
        tl.store(dweight + place, dw.to(dweight.dtype.element_ty), mask=here)
    to = (token * E + edge[:, None]) * C + channel[None, :]
    mask = (edge < E)[:, None] & (channel < C)[None, :]
    tl.store(dlogits + to, (dlogit * tau[None, :]).to(dlogits.dtype.element_ty), mask=mask)
    if dtemperature is not None:
        tl.store(dtemperature + token * C + channel, dtau.to(dtemperature.dtype.element_ty), mask=channel < C)

"""Kernels that keep the heaviest pointers of short lists; a list is in registers as a whole."""

import triton
import triton.language as tl

SIZES = ["lists"]


@triton.jit
def load_lists(x, low, lists, M: tl.constexpr, BLOCK_M: tl.constexpr, ROWS: tl.constexpr):
    """Rows low, low + 1, … of x (lists, M), zero beyond: [ROWS, BLOCK_M]."""
    at, member = low + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_M)[None, :]
    return tl.load(x + at.to(tl.int64) * M + member, mask=(at < lists) & (member < M), other=0)


@triton.jit
def store_lists(x, value, low, lists, M: tl.constexpr, BLOCK_M: tl.constexpr, ROWS: tl.constexpr):
    """Inverse of :func:`load_lists`."""
    at, member = low + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_M)[None, :]
    place = x + at.to(tl.int64) * M + member
    tl.store(place, value.to(x.dtype.element_ty), mask=(at < lists) & (member < M))


@triton.jit
def as_ranks(weight):
    """Integers in the order of non-negative weights, NaN above all, so that it is not lost."""
    return tl.where(weight != weight, 0x7FFFFFFF, weight.to(tl.int32, bitcast=True))


@triton.jit
def keep_heaviest(
    index, weight, S: tl.constexpr, BLOCK_S: tl.constexpr, ROWS: tl.constexpr, BLOCK_M: tl.constexpr
):  # fmt: skip
    """Merges equal indices of lists [ROWS, BLOCK_M] and keeps S: index and weight [ROWS, BLOCK_S], sum [ROWS].

    The heaviest come first, ties by first position; an empty slot is index 0, weight 0.
    """
    member, slot = tl.arange(0, BLOCK_M)[None, :], tl.arange(0, BLOCK_S)[None, :]
    same = index[:, :, None] == index[:, None, :]
    rank = as_ranks(tl.sum(tl.where(same, weight[:, None, :], 0.0), 2))  # equal for equal indices
    kept_index = tl.zeros([ROWS, BLOCK_S], tl.int32)
    kept_rank = tl.zeros([ROWS, BLOCK_S], tl.int32)
    for t in range(S):
        best = tl.max(rank, 1)[:, None]
        first = tl.min(tl.where(rank == best, member, BLOCK_M), 1)[:, None]
        chosen = tl.sum(tl.where(member == first, index, 0), 1)[:, None]
        kept = (slot == t) & (best > 0)
        kept_index = tl.where(kept, chosen, kept_index)
        kept_rank = tl.where(kept, best, kept_rank)
        rank = tl.where(index == chosen, -1, rank)
    kept_weight = kept_rank.to(tl.float32, bitcast=True)
    total = tl.sum(kept_weight, 1)
    return kept_index, kept_weight / tl.where(total < 1e-8, 1e-8, total)[:, None], total


@triton.jit
def kept_mean(out_weight, grad, total, low, lists, S: tl.constexpr, ROWS: tl.constexpr):
    """What the division by the sum takes from all gradients of a list, and the divisor: [ROWS] each."""
    at = low + tl.arange(0, ROWS)
    inside = at < lists
    mean = tl.zeros([ROWS], tl.float32)
    for t in range(S):
        place = at.to(tl.int64) * S + t
        g = tl.load(grad + place, mask=inside, other=0.0)
        mean += tl.load(out_weight + place, mask=inside, other=0.0) * g
    whole = tl.load(total + at, mask=inside, other=1.0)
    return tl.where(whole > 1e-8, mean, 0.0), tl.where(whole < 1e-8, 1e-8, whole)  # a clamped sum is constant


@triton.jit
def kept_gradient(
    index, out_index, out_weight, grad, mean, divisor, low, lists,
    S: tl.constexpr, ROWS: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Gradients of candidates [ROWS, BLOCK_M]: of all whose index was kept, however many hold it."""
    at = low + tl.arange(0, ROWS)
    inside = at < lists
    result = tl.zeros([ROWS, BLOCK_M], tl.float32)
    for t in range(S):
        place = at.to(tl.int64) * S + t
        kept = tl.load(out_index + place, mask=inside, other=0)
        full = tl.load(out_weight + place, mask=inside, other=0.0) != 0
        step = (tl.load(grad + place, mask=inside, other=0.0) - mean) / divisor
        result = tl.where((index == kept[:, None]) & full[:, None], step[:, None], result)
    return result


@triton.jit(do_not_specialize=SIZES)
def sparsify_kernel(
    index, weight, out_index, out_weight, total, lists,
    M: tl.constexpr, BLOCK_M: tl.constexpr, S: tl.constexpr, BLOCK_S: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists; ``total`` (lists) is what the kept weights were divided by, unless below 1e-8."""
    low = tl.program_id(0) * ROWS
    candidate = load_lists(index, low, lists, M, BLOCK_M, ROWS)
    w = load_lists(weight, low, lists, M, BLOCK_M, ROWS).to(tl.float32)
    kept_index, kept_weight, whole = keep_heaviest(candidate, w, S, BLOCK_S, ROWS, BLOCK_M)
    store_lists(out_index, kept_index, low, lists, S, BLOCK_S, ROWS)
    store_lists(out_weight, kept_weight, low, lists, S, BLOCK_S, ROWS)
    at = low + tl.arange(0, ROWS)
    tl.store(total + at, whole, mask=at < lists)


@triton.jit(do_not_specialize=SIZES)
def sparsify_backward_kernel(
    index, out_index, out_weight, grad, total, dweight, lists,
    M: tl.constexpr, BLOCK_M: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists."""
    low = tl.program_id(0) * ROWS
    candidate = load_lists(index, low, lists, M, BLOCK_M, ROWS)
    mean, divisor = kept_mean(out_weight, grad, total, low, lists, S, ROWS)
    step = kept_gradient(candidate, out_index, out_weight, grad, mean, divisor, low, lists, S, ROWS, BLOCK_M)
    store_lists(dweight, step, low, lists, M, BLOCK_M, ROWS)

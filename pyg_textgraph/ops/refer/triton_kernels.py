"""Kernels of referral. A list is the pointers of one token and channel, its place (token · K + channel)."""

import triton
import triton.language as tl

from pyg_textgraph.ops.sparsify.triton_kernels import (
    keep_heaviest,
    kept_gradient,
    kept_mean,
    store_lists,
)

SIZES = ["lists", "queries", "keys", "rows"]


@triton.jit
def follow(
    token, inside, at, next_index, next_weight, member, queries, keys, K: tl.constexpr, S3: tl.constexpr
):  # fmt: skip
    """Index and weight of one of the S3 next pointers; all arguments broadcast. From no token of the sequence: NaN."""
    known = (token >= 0) & (token < keys)
    row = (at // (queries * K) * keys + tl.where(known, token, 0)) * K + at % K
    place = row.to(tl.int64) * S3 + member
    there = inside & known
    w = tl.load(next_weight + place, mask=there, other=0.0).to(tl.float32)
    w = tl.where(known, w, float("nan"))
    return tl.load(next_index + place, mask=there, other=0), tl.where(inside, w, 0.0)


@triton.jit(do_not_specialize=SIZES)
def refer_kernel(
    index, weight, next_index, next_weight, out_index, out_weight, total, lists, queries, keys,
    K: tl.constexpr, S2: tl.constexpr, S3: tl.constexpr, BLOCK_M: tl.constexpr,
    S: tl.constexpr, BLOCK_S: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists; the S2·S3 products of a list are its candidates."""
    low = tl.program_id(0) * ROWS
    at, member = low + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_M)[None, :]
    inside = (at < lists) & (member < S2 * S3)
    place = at.to(tl.int64) * S2 + member // S3
    token = tl.load(index + place, mask=inside, other=0)
    w = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    candidate, next_w = follow(token, inside, at, next_index, next_weight, member % S3, queries, keys, K, S3)
    kept_index, kept_weight, whole = keep_heaviest(candidate, w * next_w, S, BLOCK_S, ROWS, BLOCK_M)
    store_lists(out_index, kept_index, low, lists, S, BLOCK_S, ROWS)
    store_lists(out_weight, kept_weight, low, lists, S, BLOCK_S, ROWS)
    row = low + tl.arange(0, ROWS)
    tl.store(total + row, whole, mask=row < lists)


@triton.jit(do_not_specialize=SIZES)
def list_kernel(
    index, weight, next_index, next_weight, out_index, out_weight, grad, total, dweight, step, lists, queries, keys,
    K: tl.constexpr, S2: tl.constexpr, S3: tl.constexpr, BLOCK_S3: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists: ``dweight``, and ``step`` (lists, S2, S3), what each gives to the next weights."""
    low = tl.program_id(0) * ROWS
    at, member = low + tl.arange(0, ROWS), tl.arange(0, BLOCK_S3)[None, :]
    inside = at < lists
    mean, divisor = kept_mean(out_weight, grad, total, low, lists, S, ROWS)
    for a in range(S2):
        place = at.to(tl.int64) * S2 + a
        token = tl.load(index + place, mask=inside, other=0)
        w = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
        here = inside[:, None] & (member < S3)
        candidate, next_w = follow(
            token[:, None], here, at[:, None], next_index, next_weight, member, queries, keys, K, S3
        )
        dproduct = kept_gradient(candidate, out_index, out_weight, grad, mean, divisor, low, lists, S, ROWS, BLOCK_S3)
        dproduct = tl.where(here, dproduct, 0.0)
        tl.store(dweight + place, tl.sum(dproduct * next_w, 1).to(dweight.dtype.element_ty), mask=inside)
        tl.store(step + place[:, None] * S3 + member, dproduct * w[:, None], mask=here)


@triton.jit
def sum_pointers(step, pointer, begin, end, skip, skipped, S3: tl.constexpr, BLOCK_S3: tl.constexpr,
                 ROWS: tl.constexpr, POINTERS: tl.constexpr):  # fmt: skip
    """Per row the sum of its pointers begin, …, end − 1, but for ``skipped`` from ``skip`` on: [ROWS, BLOCK_S3]."""
    member = tl.arange(0, BLOCK_S3)[None, None, :]
    total = tl.zeros([ROWS, POINTERS, BLOCK_S3], tl.float32)
    for low in range(0, tl.max(end - begin - skipped, 0), POINTERS):
        at = begin[:, None] + low + tl.arange(0, POINTERS)[None, :]
        at += tl.where(at >= skip[:, None], skipped[:, None], 0)
        inside = at < end[:, None]
        place = tl.load(pointer + at, mask=inside, other=0).to(tl.int64)
        total += tl.load(step + place[:, :, None] * S3 + member, mask=inside[:, :, None] & (member < S3), other=0.0)
    return tl.sum(total, 1)


@triton.jit(do_not_specialize=SIZES)
def chunk_kernel(
    step, pointer, named, partial, chunks, rows,
    S3: tl.constexpr, BLOCK_S3: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, POINTERS: tl.constexpr,
):  # fmt: skip
    """ROWS chunks of CHUNK sorted pointers per program: their sums, ``partial`` (chunks, S3), if all name one row."""
    low = tl.program_id(0) * ROWS
    at = low + tl.arange(0, ROWS)
    begin = at * CHUNK
    row = tl.load(named + begin, mask=at < chunks, other=0)
    whole = (row < rows) & (row == tl.load(named + begin + CHUNK - 1, mask=at < chunks, other=-1))
    end = tl.where(whole, begin + CHUNK, begin)
    none = tl.zeros([ROWS], tl.int32)
    value = sum_pointers(step, pointer, begin, end, end, none, S3, BLOCK_S3, ROWS, POINTERS)
    store_lists(partial, value, low, chunks, S3, BLOCK_S3, ROWS)


@triton.jit(do_not_specialize=SIZES)
def next_kernel(
    step, pointer, start, partial, dnext, rows,
    S3: tl.constexpr, BLOCK_S3: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, POINTERS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists of next pointers, over the pointers that name them; the order of sums is fixed."""
    low = tl.program_id(0) * ROWS
    at, member = low + tl.arange(0, ROWS), tl.arange(0, BLOCK_S3)[None, None, :]
    begin = tl.load(start + at, mask=at < rows, other=0)
    end = tl.load(start + at + 1, mask=at < rows, other=0)
    first, last = (begin + CHUNK - 1) // CHUNK, end // CHUNK  # chunks of this row only
    last = tl.maximum(first, last)
    skipped = (last - first) * CHUNK
    value = sum_pointers(step, pointer, begin, end, first * CHUNK, skipped, S3, BLOCK_S3, ROWS, POINTERS)
    total = tl.zeros([ROWS, POINTERS, BLOCK_S3], tl.float32)
    for i in range(0, tl.max(last - first, 0), POINTERS):
        chunk = first[:, None] + i + tl.arange(0, POINTERS)[None, :]
        inside = (chunk < last[:, None])[:, :, None] & (member < S3)
        total += tl.load(partial + chunk[:, :, None] * S3 + member, mask=inside, other=0.0)
    store_lists(dnext, value + tl.sum(total, 1), low, rows, S3, BLOCK_S3, ROWS)

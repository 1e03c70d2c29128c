"""Kernels of edge attention. A list is the pointers of one token and group, its place (token · G + group).

Lists, keys and values are rows of flat tables; each list has R query heads.
"""

import triton
import triton.language as tl

# sizes that change with every batch: no kernel of their own for 1 or for multiples of 16
SIZES = ["lists", "queries", "keys", "rows"]
TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal float32; a GPU may take smaller ones for zero


@triton.jit
def load_pointers(
    index, weight, low, lists, queries, keys,
    G: tl.constexpr, S: tl.constexpr, BLOCK_S: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Pointers of the lists low, low + 1, …: which row of keys, their weights, which are empty: [ROWS, BLOCK_S].

    A pointer to no token of the sequence has weight NaN, so that nobody takes what comes out for a result.
    """
    at, slot = low + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_S)[None, :]
    inside = (at < lists) & (slot < S)
    place = at.to(tl.int64) * S + slot
    token = tl.load(index + place, mask=inside, other=0)
    w = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    empty = w <= 0
    known = (token >= 0) & (token < keys)
    w = tl.where(known | empty, w, float("nan"))
    row = (at // (queries * G) * keys + tl.where(known, token, 0)) * G + at % G
    return row, tl.where(w < TINY, TINY, w), empty


@triton.jit
def gather_rows(x, row, empty, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of x (·, D), zero where empty: [ROWS, BLOCK_S, BLOCK_D]."""
    channel = tl.arange(0, BLOCK_D)[None, None, :]
    place = row.to(tl.int64)[:, :, None] * D + channel
    return tl.load(x + place, mask=(empty == 0)[:, :, None] & (channel < D), other=0.0).to(tl.float32)


@triton.jit
def load_heads(x, row, inside, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of x (·, D): [ROWS, BLOCK_D]."""
    channel = tl.arange(0, BLOCK_D)[None, :]
    place = row.to(tl.int64)[:, None] * D + channel
    return tl.load(x + place, mask=inside[:, None] & (channel < D), other=0.0).to(tl.float32)


@triton.jit
def store_heads(x, value, row, inside, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Inverse of :func:`load_heads`."""
    channel = tl.arange(0, BLOCK_D)[None, :]
    place = row.to(tl.int64)[:, None] * D + channel
    tl.store(x + place, value.to(x.dtype.element_ty), mask=inside[:, None] & (channel < D))


@triton.jit(do_not_specialize=SIZES)
def attend_kernel(
    q, k, v, index, weight, node_tau, edge_tau, out, attention, lists, queries, keys, scale,
    G: tl.constexpr, R: tl.constexpr, S: tl.constexpr, BLOCK_S: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists, which reads their keys and values once for all R heads."""
    low = tl.program_id(0) * ROWS
    at = low + tl.arange(0, ROWS)
    inside = at < lists
    row, w, empty = load_pointers(index, weight, low, lists, queries, keys, G, S, BLOCK_S, ROWS)
    key, value = gather_rows(k, row, empty, D, BLOCK_D), gather_rows(v, row, empty, D, BLOCK_D)
    prior = tl.log(w) * tl.load(edge_tau + at, mask=inside, other=0.0).to(tl.float32)[:, None]
    for head in range(R):
        of_head = at.to(tl.int64) * R + head
        query = load_heads(q, of_head, inside, D, BLOCK_D)
        tau = tl.load(node_tau + of_head, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(query[:, None, :] * key, 2) * (scale * tau)[:, None] + prior
        score = tl.where(empty, -float("inf"), score)
        top = tl.max(score, 1)
        power = tl.exp(score - tl.where(top == -float("inf"), 0.0, top)[:, None])
        total = tl.sum(power, 1)
        p = power / tl.where(total == 0, 1.0, total)[:, None]
        store_heads(attention, p, of_head, inside, S, BLOCK_S)
        store_heads(out, tl.sum(p[:, :, None] * value, 1), of_head, inside, D, BLOCK_D)


@triton.jit(do_not_specialize=SIZES)
def query_kernel(
    q, k, v, index, weight, node_tau, edge_tau, attention, grad, grad_attention,
    dq, dweight, dnode, dedge, step, lists, queries, keys, scale,
    G: tl.constexpr, R: tl.constexpr, S: tl.constexpr, BLOCK_S: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per ROWS lists: all gradients but those of keys and values, and ``step``, the one of q·k (fp32)."""
    low = tl.program_id(0) * ROWS
    at = low + tl.arange(0, ROWS)
    inside = at < lists
    row, w, empty = load_pointers(index, weight, low, lists, queries, keys, G, S, BLOCK_S, ROWS)
    key, value = gather_rows(k, row, empty, D, BLOCK_D), gather_rows(v, row, empty, D, BLOCK_D)
    shared = tl.zeros([ROWS, BLOCK_S], tl.float32)
    for head in range(R):
        of_head = at.to(tl.int64) * R + head
        query = load_heads(q, of_head, inside, D, BLOCK_D)
        dout = load_heads(grad, of_head, inside, D, BLOCK_D)
        p = load_heads(attention, of_head, inside, S, BLOCK_S)
        tau = tl.load(node_tau + of_head, mask=inside, other=0.0).to(tl.float32)
        dp = tl.sum(dout[:, None, :] * value, 2) + load_heads(grad_attention, of_head, inside, S, BLOCK_S)
        dscore = p * (dp - tl.sum(dp * p, 1)[:, None])
        shared += dscore
        dtau = tl.sum(dscore * tl.sum(query[:, None, :] * key, 2), 1) * scale
        tl.store(dnode + of_head, dtau.to(dnode.dtype.element_ty), mask=inside)
        dproduct = dscore * (scale * tau)[:, None]
        store_heads(step, dproduct, of_head, inside, S, BLOCK_S)
        store_heads(dq, tl.sum(dproduct[:, :, None] * key, 1), of_head, inside, D, BLOCK_D)
    tau = tl.load(edge_tau + at, mask=inside, other=0.0).to(tl.float32)
    dtau = tl.sum(tl.where(empty, 0.0, shared * tl.log(w)), 1)
    tl.store(dedge + at, dtau.to(dedge.dtype.element_ty), mask=inside)
    store_heads(dweight, tl.where(empty, 0.0, shared * tau[:, None] / w), at, inside, S, BLOCK_S)


@triton.jit
def sum_pointers(
    q, attention, grad, step, pointer, begin, end, skip, skipped,
    R: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What the pointers at begin, …, end − 1 give to key and value, but for ``skipped`` from ``skip`` on.

    A pointer is given by its place, list · S + slot. ROWS of them are added at a time: [ROWS, BLOCK_D].
    """
    dkey = tl.zeros([ROWS, BLOCK_D], tl.float32)
    dvalue = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for low in range(begin, end - skipped, ROWS):
        at = low + tl.arange(0, ROWS)
        at += tl.where(at >= skip, skipped, 0)
        inside = at < end
        place = tl.load(pointer + at, mask=inside, other=0)
        for head in range(R):
            of_head = (place // S).to(tl.int64) * R + head
            slot = of_head * S + place % S
            dproduct = tl.load(step + slot, mask=inside, other=0.0)
            dkey += dproduct[:, None] * load_heads(q, of_head, inside, D, BLOCK_D)
            p = tl.load(attention + slot, mask=inside, other=0.0)
            dvalue += p[:, None] * load_heads(grad, of_head, inside, D, BLOCK_D)
    return dkey, dvalue


@triton.jit(do_not_specialize=SIZES)
def chunk_kernel(
    q, attention, grad, step, pointer, named, partial, rows,
    R: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per CHUNK sorted pointers: their sum, ``partial`` (chunks, 2, D), if all name the same row."""
    begin = tl.program_id(0) * CHUNK
    row = tl.load(named + begin)
    if (row < rows) & (row == tl.load(named + begin + CHUNK - 1)):
        end = begin + CHUNK
        dkey, dvalue = sum_pointers(q, attention, grad, step, pointer, begin, end, end, 0, R, S, D, BLOCK_D, ROWS)
        channel = tl.arange(0, BLOCK_D)
        place = partial + tl.program_id(0).to(tl.int64) * 2 * D + channel
        tl.store(place, tl.sum(dkey, 0), mask=channel < D)
        tl.store(place + D, tl.sum(dvalue, 0), mask=channel < D)


@triton.jit
def key_kernel(
    q, attention, grad, step, pointer, start, partial, dk, dv,
    R: tl.constexpr, S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per row of keys, over the pointers that name it; the order of every sum is fixed."""
    row = tl.program_id(0)
    begin, end = tl.load(start + row), tl.load(start + row + 1)
    first, last = tl.cdiv(begin, CHUNK), end // CHUNK  # chunks of this row only
    skipped = tl.maximum(last - first, 0) * CHUNK
    dkey, dvalue = sum_pointers(
        q, attention, grad, step, pointer, begin, end, first * CHUNK, skipped, R, S, D, BLOCK_D, ROWS
    )
    for low in range(first, last, ROWS):
        chunk = low + tl.arange(0, ROWS)
        dkey += load_heads(partial, 2 * chunk, chunk < last, D, BLOCK_D)
        dvalue += load_heads(partial, 2 * chunk + 1, chunk < last, D, BLOCK_D)
    channel = tl.arange(0, BLOCK_D)
    place = row.to(tl.int64) * D + channel
    tl.store(dk + place, tl.sum(dkey, 0).to(dk.dtype.element_ty), mask=channel < D)
    tl.store(dv + place, tl.sum(dvalue, 0).to(dv.dtype.element_ty), mask=channel < D)

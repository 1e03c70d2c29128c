"""Backward kernels: one walks over keys for dQ and dB, one over queries for dK and dV."""

import triton
import triton.language as tl

from pyg_textgraph.ops.graph_attention.triton_scores import (
    SIZES,
    key_range,
    load_tile,
    load_tokens,
    pair_bias,
    query_range,
    scores,
    sees,
    store_tokens,
)


@triton.jit(do_not_specialize=SIZES)
def query_kernel(
    q, k, v, bias, node, at, graph_ptr, limit, tiles, out, lse, grad, delta, dq,
    segment, segment_ptr, pair_ptr, partial,
    tokens, pairs, nodes, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, RUNS: tl.constexpr, H_BIAS: tl.constexpr, H: tl.constexpr,
    H_KV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program per query tile and head, key tiles of the same size.

    Writes ``delta`` (H, T), the sum of dO∘O over channels; ``dq`` (T, H, D) unless None; and unless None ``partial``
    (H, pairs), dB of pairs of segments. A segment is a run of one node inside a tile, so each pair of them lies in one
    pair of tiles: no two programs write to one place.
    """
    head = tl.program_id(1)
    graph, low, first, stop, last_shared = load_tile(tiles, graph_ptr, limit)
    if bias is not None:
        bias += (graph * H_BIAS + head % H_BIAS).to(tl.int64) * nodes * nodes
    row = low + tl.arange(0, ROWS)
    row_node = tl.load(node + row, mask=row < stop, other=-1)
    row_at = tl.load(at + row, mask=row < stop, other=0)
    query = load_tokens(q, low, head, stop, H, D, ROWS, BLOCK_D)
    dout = load_tokens(grad, low, head, stop, H, D, ROWS, BLOCK_D)
    result = load_tokens(out, low, head, stop, H, D, ROWS, BLOCK_D)
    place = head.to(tl.int64) * tokens + row
    row_delta = tl.sum(dout.to(tl.float32) * result.to(tl.float32), 1)
    tl.store(delta + place, row_delta, mask=row < stop)
    row_lse = tl.load(lse + place, mask=row < stop, other=float("inf"))
    if partial is not None:
        width = tl.load(segment_ptr + graph + 1) - tl.load(segment_ptr + graph)
        partial += head.to(tl.int64) * pairs + tl.load(pair_ptr + graph)
        run = tl.arange(0, RUNS)
        row_run = tl.load(segment + row, mask=row < stop, other=-1)
        row_first, row_last = tl.load(segment + low), tl.load(segment + tl.minimum(low + ROWS, stop) - 1)
    if dq is not None:
        total = tl.zeros([ROWS, BLOCK_D], tl.float32)
    begin, end = key_range(low, first, stop, last_shared, window, SEQUENCE, ROWS, ROWS)
    for key_low in range(begin, end, ROWS):
        key = key_low + tl.arange(0, ROWS)
        key_node = tl.load(node + key, mask=key < stop, other=-1)
        key_at = tl.load(at + key, mask=key < stop, other=0)
        key_tile = load_tokens(k, key_low, head // (H // H_KV), stop, H_KV, D, ROWS, BLOCK_D)
        value_tile = load_tokens(v, key_low, head // (H // H_KV), stop, H_KV, D, ROWS, BLOCK_D)
        product = tl.dot(query, tl.trans(key_tile), input_precision=PRECISION)
        spread = None
        if bias is not None:
            spread = pair_bias(bias, row_node[:, None], key_node[None, :], nodes)
        score, slope = scores(product, spread, scale, softcap)
        see = sees(
            row[:, None], key[None, :], row_node[:, None], key_node[None, :], row_at[:, None], key_at[None, :],
            stop, last_shared, window, SEQUENCE,
        )  # fmt: skip
        score = tl.where(see, score, -float("inf"))
        weight = tl.exp2(score - row_lse[:, None])
        dweight = tl.dot(dout, tl.trans(value_tile), input_precision=PRECISION)
        dscore = weight * (dweight - row_delta[:, None])
        if partial is not None:
            key_run = tl.load(segment + key, mask=key < stop, other=-1)
            key_first, key_last = tl.load(segment + key_low), tl.load(segment + tl.minimum(key_low + ROWS, stop) - 1)
            of_key = (key_run[:, None] == key_first + run[None, :]).to(tl.float32)
            of_row = (row_run[None, :] == row_first + run[:, None]).to(tl.float32)
            # at tf32's precision for low-precision inputs, whose range dS may leave
            by_key = tl.dot(dscore, of_key, input_precision=PRECISION)  # [ROWS, RUNS]
            by_pair = tl.dot(of_row, by_key, input_precision=PRECISION)  # [RUNS, RUNS]
            to = (row_first + run[:, None]).to(tl.int64) * width + key_first + run[None, :]
            inside = (row_first + run[:, None] <= row_last) & (key_first + run[None, :] <= key_last)
            tl.store(partial + to, by_pair, mask=inside)
        if dq is not None:
            if softcap is not None:
                dscore *= slope
            total = tl.dot(dscore.to(key_tile.dtype), key_tile, total, input_precision=PRECISION)
    if dq is not None:
        store_tokens(dq, total * scale, low, head, stop, H, D, ROWS, BLOCK_D)


@triton.jit(do_not_specialize=SIZES)
def key_kernel(
    q, k, v, bias, node, at, graph_ptr, limit, tiles, lse, grad, delta, dk, dv,
    tokens, nodes, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, H_BIAS: tl.constexpr,
    H: tl.constexpr, H_KV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program per key tile and key head, over all queries that see it and all heads that share it.

    Tiles are [keys, queries] here, so that no product needs its own result transposed.
    """
    kv_head = tl.program_id(1)
    graph, low, first, stop, last_shared = load_tile(tiles, graph_ptr, limit)
    key = low + tl.arange(0, KEYS)
    key_node = tl.load(node + key, mask=key < stop, other=-1)
    key_at = tl.load(at + key, mask=key < stop, other=0)
    key_tile = load_tokens(k, low, kv_head, stop, H_KV, D, KEYS, BLOCK_D)
    value_tile = load_tokens(v, low, kv_head, stop, H_KV, D, KEYS, BLOCK_D)
    dkey = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dvalue = tl.zeros([KEYS, BLOCK_D], tl.float32)
    begin, end = query_range(low, first, stop, last_shared, window, SEQUENCE, KEYS)
    for head in range(kv_head * (H // H_KV), (kv_head + 1) * (H // H_KV)):
        for row_low in range(begin, end, ROWS):
            row = row_low + tl.arange(0, ROWS)
            row_node = tl.load(node + row, mask=row < stop, other=-1)
            row_at = tl.load(at + row, mask=row < stop, other=0)
            place = head * tl.full((), 1, tl.int64) * tokens + row
            row_lse = tl.load(lse + place, mask=row < stop, other=float("inf"))
            row_delta = tl.load(delta + place, mask=row < stop, other=0.0)
            query = load_tokens(q, row_low, head, stop, H, D, ROWS, BLOCK_D)
            dout = load_tokens(grad, row_low, head, stop, H, D, ROWS, BLOCK_D)
            product = tl.dot(key_tile, tl.trans(query), input_precision=PRECISION)
            spread = None
            if bias is not None:
                head_bias = bias + (graph * H_BIAS + head % H_BIAS).to(tl.int64) * nodes * nodes
                spread = pair_bias(head_bias, row_node[None, :], key_node[:, None], nodes)
            score, slope = scores(product, spread, scale, softcap)
            see = sees(
                row[None, :], key[:, None], row_node[None, :], key_node[:, None], row_at[None, :], key_at[:, None],
                stop, last_shared, window, SEQUENCE,
            )  # fmt: skip
            score = tl.where(see, score, -float("inf"))
            weight = tl.exp2(score - row_lse[None, :])
            dvalue = tl.dot(weight.to(dout.dtype), dout, dvalue, input_precision=PRECISION)
            dscore = weight * (tl.dot(value_tile, tl.trans(dout), input_precision=PRECISION) - row_delta[None, :])
            if softcap is not None:
                dscore *= slope
            dkey = tl.dot(dscore.to(query.dtype), query, dkey, input_precision=PRECISION)
    store_tokens(dk, dkey * scale, low, kv_head, stop, H_KV, D, KEYS, BLOCK_D)
    store_tokens(dv, dvalue, low, kv_head, stop, H_KV, D, KEYS, BLOCK_D)


@triton.jit(do_not_specialize=SIZES)
def node_kernel(
    partial, segment_ptr, pair_ptr, by_node, node_ptr, dbias, pairs, nodes, most, H: tl.constexpr, KEYS: tl.constexpr
):
    """Sums dB of pairs of segments to pairs of nodes; one program per query's node, block of keys' nodes and head.

    ``by_node`` lists each node's segments, ``node_ptr`` (B·N + 1) where they start, ``most`` their largest number;
    ``dbias`` is (B, H, N, N), its diagonal 0.
    """
    graph, query, head = tl.program_id(0) // nodes, tl.program_id(0) % nodes, tl.program_id(2)
    key = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    start = tl.load(node_ptr + graph * nodes + key, mask=key < nodes, other=0)
    stop = tl.load(node_ptr + graph * nodes + key + 1, mask=key < nodes, other=0)
    width = tl.load(segment_ptr + graph + 1) - tl.load(segment_ptr + graph)
    partial += head.to(tl.int64) * pairs + tl.load(pair_ptr + graph)
    total = tl.zeros([KEYS], tl.float32)
    for i in range(tl.load(node_ptr + tl.program_id(0)), tl.load(node_ptr + tl.program_id(0) + 1)):
        row = tl.load(by_node + i).to(tl.int64) * width
        for j in range(0, most):
            column = tl.load(by_node + start + j, mask=start + j < stop, other=0)
            total += tl.load(partial + row + column, mask=start + j < stop, other=0.0)
    to = ((graph * H + head).to(tl.int64) * nodes + query) * nodes + key
    tl.store(dbias + to, tl.where(key == query, 0.0, total).to(dbias.dtype.element_ty), mask=key < nodes)

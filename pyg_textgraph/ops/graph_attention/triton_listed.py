"""Kernels for listed pairs of nodes: a tile holds tokens of one node and walks the list of all tokens that it meets.

A tile is one row of ``tiles`` (n, 6): where its tokens start and stop in ``token`` (tokens by node), where its list
starts and stops in ``entry`` (tokens) and ``column`` (their pair, or ``pairs`` for none: bias 0), its place among the
lists of all tiles, and its graph.
"""

import triton
import triton.language as tl

from pyg_textgraph.ops.graph_attention.triton_scores import SIZES, scores, sees


@triton.jit
def gather(x, token, head, inside, HEADS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """One head of x (T, HEADS, D) for each of some tokens: [*, BLOCK_D]."""
    channel = tl.arange(0, BLOCK_D)
    place = (token.to(tl.int64) * HEADS + head) * D
    return tl.load(x + place[:, None] + channel[None, :], mask=inside[:, None] & (channel < D)[None, :], other=0.0)


@triton.jit
def scatter(x, value, token, head, inside, HEADS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Inverse of :func:`gather`."""
    channel = tl.arange(0, BLOCK_D)
    place = (token.to(tl.int64) * HEADS + head) * D
    mask = inside[:, None] & (channel < D)[None, :]
    tl.store(x + place[:, None] + channel[None, :], value.to(x.dtype.element_ty), mask=mask)


@triton.jit
def load_list(tiles, limit):
    """Range of a tile's tokens, range of its list, place among all lists, and its graph's limit."""
    tiles += 6 * tl.program_id(0)
    last_shared = tl.load(limit + tl.load(tiles + 5))
    return tl.load(tiles), tl.load(tiles + 1), tl.load(tiles + 2), tl.load(tiles + 3), tl.load(tiles + 4), last_shared


@triton.jit
def query_rows(token, start, stop, GROUP: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr):
    """Query tokens times the heads that share a key head, as rows of one tile: token, head, whether it is real."""
    row = tl.arange(0, HEADS * ROWS)
    place, head = start + row % ROWS, row // ROWS
    inside = (place < stop) & (head < GROUP)
    return tl.load(token + place, mask=inside, other=0), tl.program_id(1) * GROUP + head, inside


@triton.jit(do_not_specialize=SIZES)
def listed_forward_kernel(
    q, k, v, bias, node, at, limit, token, tiles, entry, column, out, lse,
    tokens, pairs, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, H_KV: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program per tile and key head; ``out`` (T, H, D), ``lse`` (H, T) in base 2, +∞ where nothing is seen."""
    start, stop, begin, end, _first, last_shared = load_list(tiles, limit)
    row, head, inside = query_rows(token, start, stop, GROUP, HEADS, ROWS)
    row_node, row_at = tl.load(node + row), tl.load(at + row)
    query = gather(q, row, head, inside, GROUP * H_KV, D, BLOCK_D)
    top = tl.full([HEADS * ROWS], -float("inf"), tl.float32)
    total = tl.zeros([HEADS * ROWS], tl.float32)
    value = tl.zeros([HEADS * ROWS, BLOCK_D], tl.float32)
    for low in range(begin, end, KEYS):
        place = low + tl.arange(0, KEYS)
        key = tl.load(entry + place, mask=place < end, other=0)
        key_node, key_at = tl.load(node + key), tl.load(at + key)
        key_tile = gather(k, key, tl.program_id(1), place < end, H_KV, D, BLOCK_D)
        product = tl.dot(query, tl.trans(key_tile), input_precision=PRECISION)
        spread = None
        if bias is not None:
            pair = tl.load(column + place, mask=place < end, other=pairs)[None, :]
            at_pair = head[:, None] * pairs + pair
            spread = tl.load(bias + at_pair, mask=inside[:, None] & (pair < pairs), other=0.0).to(tl.float32)
        score, _ = scores(product, spread, scale, softcap)
        see = sees(
            row[:, None], key[None, :], row_node[:, None], key_node[None, :], row_at[:, None], key_at[None, :],
            tokens, last_shared, window, SEQUENCE,
        )  # fmt: skip
        score = tl.where(see & (place < end)[None, :], score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # nothing seen yet: −∞ − −∞ would be NaN
        weight, fade = tl.exp2(score - shift[:, None]), tl.exp2(top - shift)
        value_tile = gather(v, key, tl.program_id(1), place < end, H_KV, D, BLOCK_D)
        value = tl.dot(weight.to(value_tile.dtype), value_tile, value * fade[:, None], input_precision=PRECISION)
        total = total * fade + tl.sum(weight, 1)
        top = new_top
    blind = total == 0
    total = tl.where(blind, 1.0, total)
    scatter(out, value / total[:, None], row, head, inside, GROUP * H_KV, D, BLOCK_D)
    tl.store(lse + head.to(tl.int64) * tokens + row, tl.where(blind, float("inf"), top + tl.log2(total)), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def listed_query_kernel(
    q, k, v, bias, node, at, limit, token, tiles, entry, column, out, lse, grad, delta, dq, partial,
    tokens, pairs, entries, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, H_KV: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program per tile and key head: ``delta`` (H, T), the sum of dO∘O over channels, ``dq`` (T, H, D), and unless
    None ``partial`` (H, entries), dB of every entry of every tile's list, summed over the tile's queries.
    """
    start, stop, begin, end, first, last_shared = load_list(tiles, limit)
    row, head, inside = query_rows(token, start, stop, GROUP, HEADS, ROWS)
    row_node, row_at = tl.load(node + row), tl.load(at + row)
    query = gather(q, row, head, inside, GROUP * H_KV, D, BLOCK_D)
    dout = gather(grad, row, head, inside, GROUP * H_KV, D, BLOCK_D)
    result = gather(out, row, head, inside, GROUP * H_KV, D, BLOCK_D)
    of_row = head.to(tl.int64) * tokens + row
    row_delta = tl.sum(dout.to(tl.float32) * result.to(tl.float32), 1)
    tl.store(delta + of_row, row_delta, mask=inside)
    row_lse = tl.load(lse + of_row, mask=inside, other=float("inf"))
    total = tl.zeros([HEADS * ROWS, BLOCK_D], tl.float32)
    for low in range(begin, end, KEYS):
        place = low + tl.arange(0, KEYS)
        key = tl.load(entry + place, mask=place < end, other=0)
        key_node, key_at = tl.load(node + key), tl.load(at + key)
        key_tile = gather(k, key, tl.program_id(1), place < end, H_KV, D, BLOCK_D)
        value_tile = gather(v, key, tl.program_id(1), place < end, H_KV, D, BLOCK_D)
        product = tl.dot(query, tl.trans(key_tile), input_precision=PRECISION)
        spread = None
        if bias is not None:
            pair = tl.load(column + place, mask=place < end, other=pairs)[None, :]
            at_pair = head[:, None] * pairs + pair
            spread = tl.load(bias + at_pair, mask=inside[:, None] & (pair < pairs), other=0.0).to(tl.float32)
        score, slope = scores(product, spread, scale, softcap)
        see = sees(
            row[:, None], key[None, :], row_node[:, None], key_node[None, :], row_at[:, None], key_at[None, :],
            tokens, last_shared, window, SEQUENCE,
        )  # fmt: skip
        weight = tl.exp2(tl.where(see & (place < end)[None, :], score, -float("inf")) - row_lse[:, None])
        dscore = weight * (tl.dot(dout, tl.trans(value_tile), input_precision=PRECISION) - row_delta[:, None])
        if partial is not None:
            member = tl.arange(0, HEADS)[:, None]
            to = (tl.program_id(1) * GROUP + member).to(tl.int64) * entries + first - begin + place[None, :]
            by_head = tl.sum(tl.reshape(dscore, [HEADS, ROWS, KEYS]), 1)
            tl.store(partial + to, by_head, mask=(member < GROUP) & (place < end)[None, :])
        if softcap is not None:
            dscore *= slope
        total = tl.dot(dscore.to(key_tile.dtype), key_tile, total, input_precision=PRECISION)
    scatter(dq, total * scale, row, head, inside, GROUP * H_KV, D, BLOCK_D)


@triton.jit(do_not_specialize=SIZES)
def listed_key_kernel(
    q, k, v, bias, node, at, limit, token, tiles, entry, column, lse, grad, delta, dk, dv,
    tokens, pairs, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr, H_KV: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program per tile of keys and key head; lists hold the queries that see them. Tiles are [keys, queries]."""
    start, stop, begin, end, _first, last_shared = load_list(tiles, limit)
    own = start + tl.arange(0, KEYS)
    key = tl.load(token + own, mask=own < stop, other=0)
    key_node, key_at = tl.load(node + key), tl.load(at + key)
    key_tile = gather(k, key, tl.program_id(1), own < stop, H_KV, D, BLOCK_D)
    value_tile = gather(v, key, tl.program_id(1), own < stop, H_KV, D, BLOCK_D)
    dkey = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dvalue = tl.zeros([KEYS, BLOCK_D], tl.float32)
    for head in range(tl.program_id(1) * GROUP, (tl.program_id(1) + 1) * GROUP):
        for low in range(begin, end, ROWS):
            place = low + tl.arange(0, ROWS)
            row = tl.load(entry + place, mask=place < end, other=0)
            row_node, row_at = tl.load(node + row), tl.load(at + row)
            of_row = head * tl.full((), 1, tl.int64) * tokens + row
            row_lse = tl.load(lse + of_row, mask=place < end, other=float("inf"))
            row_delta = tl.load(delta + of_row, mask=place < end, other=0.0)
            query = gather(q, row, head, place < end, GROUP * H_KV, D, BLOCK_D)
            dout = gather(grad, row, head, place < end, GROUP * H_KV, D, BLOCK_D)
            product = tl.dot(key_tile, tl.trans(query), input_precision=PRECISION)
            spread = None
            if bias is not None:
                pair = tl.load(column + place, mask=place < end, other=pairs)
                of_pair = bias + head * tl.full((), 1, tl.int64) * pairs + pair
                spread = tl.load(of_pair, mask=pair < pairs, other=0.0).to(tl.float32)[None, :]
            score, slope = scores(product, spread, scale, softcap)
            see = sees(
                row[None, :], key[:, None], row_node[None, :], key_node[:, None], row_at[None, :], key_at[:, None],
                tokens, last_shared, window, SEQUENCE,
            )  # fmt: skip
            weight = tl.exp2(tl.where(see, score, -float("inf")) - row_lse[None, :])
            dvalue = tl.dot(weight.to(dout.dtype), dout, dvalue, input_precision=PRECISION)
            dscore = weight * (tl.dot(value_tile, tl.trans(dout), input_precision=PRECISION) - row_delta[None, :])
            if softcap is not None:
                dscore *= slope
            dkey = tl.dot(dscore.to(query.dtype), query, dkey, input_precision=PRECISION)
    scatter(dk, dkey * scale, key, tl.program_id(1), own < stop, H_KV, D, BLOCK_D)
    scatter(dv, dvalue, key, tl.program_id(1), own < stop, H_KV, D, BLOCK_D)


@triton.jit(do_not_specialize=SIZES)
def pair_kernel(partial, runs, dbias, pairs, entries, most, most_tiles, PAIRS: tl.constexpr):
    """Sums dB of list entries to pairs; one program per block of pairs and head.

    A row of ``runs`` (pairs, 4): where the pair's entries start in the first tile of its query's node, their number,
    the node's number of tiles, and how far apart the tiles' lists are.
    """
    pair, head = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS), tl.program_id(1).to(tl.int64)
    start = tl.load(runs + 4 * pair, mask=pair < pairs, other=0)
    count = tl.load(runs + 4 * pair + 1, mask=pair < pairs, other=0)
    tiles = tl.load(runs + 4 * pair + 2, mask=pair < pairs, other=0)
    apart = tl.load(runs + 4 * pair + 3, mask=pair < pairs, other=0)
    total = tl.zeros([PAIRS], tl.float32)
    for tile in range(0, most_tiles):
        for i in range(0, most):
            inside = (i < count) & (tile < tiles)
            total += tl.load(partial + head * entries + start + tile * apart + i, mask=inside, other=0.0)
    tl.store(dbias + head * pairs + pair, total.to(dbias.dtype.element_ty), mask=pair < pairs)

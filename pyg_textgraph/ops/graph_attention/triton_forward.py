"""Forward kernel: online softmax over the key tiles of a query tile's graph."""

import triton
import triton.language as tl

from pyg_textgraph.ops.graph_attention.triton_scores import (
    SIZES,
    key_range,
    load_tile,
    load_tokens,
    pair_bias,
    scores,
    sees,
    store_tokens,
)


@triton.jit(do_not_specialize=SIZES)
def forward_kernel(
    q, k, v, bias, node, at, graph_ptr, limit, tiles, out, lse,
    tokens, nodes, scale, softcap, window,
    SEQUENCE: tl.constexpr, PRECISION: tl.constexpr, H_BIAS: tl.constexpr,
    H: tl.constexpr, H_KV: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program per query tile and head; ``out`` (T, H, D), ``lse`` (H, T) in base 2, +∞ where nothing is seen."""
    head = tl.program_id(1)
    graph, low, first, stop, last_shared = load_tile(tiles, graph_ptr, limit)
    if bias is not None:
        bias += (graph * H_BIAS + head % H_BIAS).to(tl.int64) * nodes * nodes
    row = low + tl.arange(0, ROWS)
    row_node = tl.load(node + row, mask=row < stop, other=-1)
    row_at = tl.load(at + row, mask=row < stop, other=0)
    query = load_tokens(q, low, head, stop, H, D, ROWS, BLOCK_D)
    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    value = tl.zeros([ROWS, BLOCK_D], tl.float32)
    begin, end = key_range(low, first, stop, last_shared, window, SEQUENCE, ROWS, KEYS)
    for key_low in range(begin, end, KEYS):
        key = key_low + tl.arange(0, KEYS)
        key_node = tl.load(node + key, mask=key < stop, other=-1)
        key_at = tl.load(at + key, mask=key < stop, other=0)
        key_tile = load_tokens(k, key_low, head // (H // H_KV), stop, H_KV, D, KEYS, BLOCK_D)
        product = tl.dot(query, tl.trans(key_tile), input_precision=PRECISION)
        spread = None
        if bias is not None:
            spread = pair_bias(bias, row_node[:, None], key_node[None, :], nodes)
        score, _ = scores(product, spread, scale, softcap)
        see = sees(
            row[:, None], key[None, :], row_node[:, None], key_node[None, :], row_at[:, None], key_at[None, :],
            stop, last_shared, window, SEQUENCE,
        )  # fmt: skip
        score = tl.where(see, score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # nothing seen yet: −∞ − −∞ would be NaN
        weight, fade = tl.exp2(score - shift[:, None]), tl.exp2(top - shift)
        value_tile = load_tokens(v, key_low, head // (H // H_KV), stop, H_KV, D, KEYS, BLOCK_D)
        value = tl.dot(weight.to(value_tile.dtype), value_tile, value * fade[:, None], input_precision=PRECISION)
        total = total * fade + tl.sum(weight, 1)
        top = new_top
    blind = total == 0
    total = tl.where(blind, 1.0, total)
    store_tokens(out, value / total[:, None], low, head, stop, H, D, ROWS, BLOCK_D)
    place = lse + head.to(tl.int64) * tokens + row
    tl.store(place, tl.where(blind, float("inf"), top + tl.log2(total)), mask=row < stop)

"""What all kernels of graph attention share: reading tokens, and the score of a query and a key."""

import triton
import triton.language as tl

# sizes that change with every batch: no kernel of their own for 1 or for multiples of 16
SIZES = ["tokens", "nodes", "pairs", "entries", "most", "most_tiles", "window"]
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tokens(x, low, head, stop, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """Tokens low, low + 1, … of one head of x (T, HEADS, D): [BLOCK, BLOCK_D], zero from ``stop`` on."""
    row, channel = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_D)[None, :]
    x += low * tl.full((), HEADS * D, tl.int64) + head * D
    return tl.load(x + (row * (HEADS * D) + channel), mask=(low + row < stop) & (channel < D), other=0.0)


@triton.jit
def store_tokens(
    x, value, low, head, stop, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Inverse of :func:`load_tokens`."""
    row, channel = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_D)[None, :]
    x += low * tl.full((), HEADS * D, tl.int64) + head * D
    mask = (low + row < stop) & (channel < D)
    tl.store(x + (row * (HEADS * D) + channel), value.to(x.dtype.element_ty), mask=mask)


@triton.jit
def load_tile(tiles, graph_ptr, limit):
    """A tile's graph, its first token, its graph's range, and from which key on a query sees only earlier keys."""
    graph, low = tl.load(tiles + 2 * tl.program_id(0)), tl.load(tiles + 2 * tl.program_id(0) + 1)
    return graph, low, tl.load(graph_ptr + graph), tl.load(graph_ptr + graph + 1), tl.load(limit + graph)


@triton.jit
def key_range(low, first, stop, limit, window, SEQUENCE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """The keys that the queries low, …, low + ROWS − 1 of a graph can see; starts with one of its key tiles."""
    last = tl.minimum(tl.maximum(low + ROWS, limit), stop)
    if SEQUENCE and window is not None:
        first += tl.maximum(low - window + 1 - first, 0) // KEYS * KEYS
    return first, last


@triton.jit
def query_range(low, first, stop, limit, window, SEQUENCE: tl.constexpr, KEYS: tl.constexpr):
    """The queries that can see the keys low, …, low + KEYS − 1."""
    if SEQUENCE and window is not None:
        stop = tl.minimum(stop, low + KEYS - 1 + window)
    return tl.where(low < limit, first, low), stop


@triton.jit
def sees(
    row, key, row_node, key_node, row_at, key_at, stop, limit, window, SEQUENCE: tl.constexpr
):  # fmt: skip
    """Which query sees which key of its graph, as far as the mode and the window say.

    Tokens are given by their packed place, node (−1 = none) and place for the window. The tile may be [queries, keys]
    or its transpose: all arguments broadcast.
    """
    see = (key < stop) & ((key <= row) | (key < limit))
    if window is not None:
        if SEQUENCE:
            see &= row_at - key_at < window
        else:
            see &= (row_node != key_node) | (tl.abs(row_at - key_at) < window)
    return see


@triton.jit
def pair_bias(bias, row_node, key_node, nodes):
    """One head's bias [nodes, nodes] spread over a tile; 0 inside a node and for no node."""
    two_nodes = (row_node != key_node) & (row_node >= 0) & (key_node >= 0)
    pair = row_node * nodes + key_node  # 32 bits until the last moment: pointers cost twice the registers
    return tl.load(bias + pair, mask=two_nodes, other=0.0).to(tl.float32)


@triton.jit
def scores(product, bias, scale, softcap):
    """Scores of a tile in base 2, and the slope of the soft cap."""
    score = product * scale
    slope = score
    if softcap is not None:
        capped = 2 * tl.sigmoid(2 * score / softcap) - 1  # tanh
        score, slope = softcap * capped, 1 - capped * capped
    if bias is not None:
        score += bias
    return score * LOG2E, slope

"""Cuts a batch into the pieces of ``pieces.py``. Depends on the layout and the listed pairs only: once per batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.pieces import Block, DensePlan, Hidden, ListedPlan, Piece, Plan, Tiles
from pyg_textgraph.ops.graph_attention.reference import place_of

# scores of one piece over all heads: two buffers of a block should stay in the last-level cache, those of tiles in L2
BLOCK_SCORES, TILE_SCORES = 1 << 22, 1 << 19
MAX_ROWS = 128
MAX_PLANS = 8
# what decides between blocks and tiles: gathering a key costs as much as scoring it for so many queries, a graph's
# blocks cost as much as so many scores, and a dense bias may be so many times larger than the listed one
GATHER = 12
GRAPH = 1024
MAX_SPREAD = 4


def hidden_by(layout: TokenLayout, window: int | None) -> Hidden:
    """What of :meth:`TokenLayout.visible` is left inside a graph and between nodes that see each other.

    Shapes:
        - **rows** (\\*, R), **keys** (\\*, L) packed places, T for padding
        - **returns** (\\*, R, L) bool
    """
    mode, size = layout.mode, layout.num_tokens
    is_target, node, position = (
        torch.cat([x, x.new_zeros(1)]) for x in (layout.is_target, layout.node, layout.position)
    )

    def hidden(rows: Tensor, keys: Tensor) -> Tensor:
        row, key = rows[..., :, None], keys[..., None, :]
        later = key > row
        if mode == "causal":
            out = later if window is None else later | (row - key >= window)
        else:
            # the target stands last, so a context row comes before every key of the target
            out = later & is_target[key] if mode == "prefix" else torch.zeros_like(later)
            if window is not None:
                out |= (node[row] == node[key]) & ((position[row] - position[key]).abs() >= window)
        return out & (row < size)  # a padded row must not become empty: 0/0

    return hidden


def dense_plan(layout: TokenLayout, place: Tensor | None, listed: bool, window: int | None, heads: int) -> DensePlan:
    """Blocks of consecutive queries, each with the run of keys that its graph and mode leave."""
    hidden, size = hidden_by(layout, window), layout.most_nodes
    node = torch.where(layout.node < 0, size, layout.node)
    pieces: list[Piece] = []
    ptr = layout.graph_ptr.tolist()
    for graph, (start, stop) in enumerate(pairwise(ptr)):
        context = {"prefix": stop - int(layout.is_target[start:stop].sum()), "causal": start, "full": stop}[layout.mode]
        for low, high in _cuts(start, stop, min(MAX_ROWS, BLOCK_SCORES // (heads * max(stop - start, 1)))):
            first = start if window is None or layout.mode != "causal" else max(start, low - window + 1)
            last = max(high, context)
            tail = max(low, context) - first if window is None else 0
            run_node, run = node[low:high].unique_consecutive(return_inverse=True)
            rows, keys = slice(low, high), slice(first, last)
            pieces.append(Block(graph, rows, keys, run_node, run, node[keys], tail, hidden))
    blind = None
    if place is not None:
        blind = torch.ones(layout.num_graphs, size + 1, size + 1, dtype=torch.bool, device=node.device)
        blind[tuple(place)] = False
        blind[:, -1] = blind[:, :, -1] = False
        blind.diagonal(dim1=1, dim2=2).zero_()
    return DensePlan(pieces, layout.num_graphs, size, blind, place if listed else None)


def fits_dense(layout: TokenLayout, num_pairs: int) -> bool:
    """Whether the bias of listed pairs may become dense, which is padded to the largest graph."""
    return layout.num_graphs * layout.most_nodes**2 <= MAX_SPREAD * num_pairs


def token_pairs(layout: TokenLayout) -> float:
    """How many pairs of tokens meet where all nodes of a graph see each other, about."""
    return int(layout.graph_ptr.diff().square().sum()) / (2 if layout.mode == "causal" else 1)


def _cuts(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """Cuts a range into even parts of at most ``most``, a multiple of 16, which products like."""
    if start == stop:
        return []
    most = max(32, most // 16 * 16)
    parts = -(-(stop - start) // most)
    step = -(-(stop - start) // parts // 16) * 16
    return [(low, min(low + step, stop)) for low in range(start, stop, step)]


@dataclass(frozen=True)
class Segments:
    """Tokens by node, and which node sees which: CSR lists. The tokens of no node are one more node of each graph."""

    token: Tensor  # [T] tokens, one node after the other
    ptr: Tensor  # [M + 1] where a node's tokens start
    query: Tensor  # [P'] sorted
    key: Tensor  # [P']
    column: Tensor  # [P'] listed pair, or P: bias 0
    is_target: Tensor  # [M]

    @property
    def count(self) -> Tensor:
        return self.ptr.diff()

    @property
    def num_keys(self) -> Tensor:
        """How many tokens a node sees, (M,)."""
        return torch.zeros_like(self.ptr[1:]).index_add_(0, self.query, self.count[self.key])


def segments(layout: TokenLayout, place: Tensor) -> Segments:
    """Tokens by node, with the pairs that the mode leaves, each node itself, and tokens of no node."""
    device, num_tokens, num_pairs = layout.node.device, layout.num_tokens, place.size(1)
    start = layout.num_nodes.cumsum(0) - layout.num_nodes
    pairs = place[1:] + start[place[0]]
    num_real, graph = int(layout.num_nodes.sum()), layout.graph
    node = torch.where(layout.node < 0, num_real + graph, start[graph] + layout.node)
    count = torch.bincount(node, minlength=num_real + layout.num_graphs)
    token = torch.arange(num_tokens, device=device)
    first = torch.full_like(count, num_tokens).scatter_reduce_(0, node, token, "amin")
    last = torch.full_like(count, -1).scatter_reduce_(0, node, token, "amax")
    is_target = torch.zeros_like(count, dtype=torch.bool).index_fill_(0, node[layout.is_target], True)

    ids = torch.arange(num_real, device=device)
    loose = num_real + torch.repeat_interleave(layout.num_nodes)  # [num_real] the node of the graph's loose tokens
    every = torch.arange(count.numel(), device=device)
    query, key = torch.cat([pairs, *(torch.stack(x) for x in ((every, every), (ids, loose), (loose, ids)))], dim=1)
    column = torch.arange(query.numel(), device=device).clamp(max=num_pairs)
    keep = (count[query] > 0) & (count[key] > 0) & ((query != key) | (column == num_pairs))
    if layout.mode == "causal":
        keep &= first[key] <= last[query]
    elif layout.mode == "prefix":
        keep &= ~is_target[key] | is_target[query]
    order = torch.nonzero(keep).view(-1)
    order = order[query[order].argsort(stable=True)]
    ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return Segments(node.argsort(stable=True), ptr, query[order], key[order], column[order], is_target)


def listed_plan(
    layout: TokenLayout, nodes: Segments, place: Tensor, listed: bool, window: int | None, heads: int
) -> ListedPlan:
    """Tiles of one node's queries and its compact key list; tiles of like size stand together, so padding is small."""
    hidden, num_tokens, num_pairs = hidden_by(layout, window), layout.num_tokens, place.size(1)
    count, num_keys = nodes.count, nodes.num_keys
    of_pair, within = ragged(count[nodes.key])
    key = nodes.token[nodes.ptr[nodes.key[of_pair]] + within]  # [E] key lists, one node after the other
    column = nodes.column[of_pair]
    key_start = num_keys.cumsum(0) - num_keys

    node, part = ragged(-(-count // MAX_ROWS))  # [n] tiles
    row_start = nodes.ptr[node] + part * MAX_ROWS
    num_rows = (count[node] - part * MAX_ROWS).clamp(max=MAX_ROWS)
    num_keys, key_start = num_keys[node], key_start[node]
    masked = nodes.is_target[node] if layout.mode == "prefix" else torch.full_like(node, layout.mode == "causal").bool()
    masked |= window is not None
    kind = torch.stack([masked.long(), *((2 * x.double().log2()).ceil().long() for x in (num_rows, num_keys))])
    kinds, kind = kind.unique(dim=1, return_inverse=True)
    pieces: list[Piece] = []
    for i in range(kinds.size(1)):
        chosen = torch.nonzero(kind == i).view(-1)
        rows, keys = int(num_rows[chosen].max()), int(num_keys[chosen].max())
        for tile in chosen.split(max(1, TILE_SCORES // (rows * keys * heads))):
            row = _padded(nodes.token, row_start[tile], num_rows[tile], rows, num_tokens)
            key_ = _padded(key, key_start[tile], num_keys[tile], keys, num_tokens)
            column_ = _padded(column, key_start[tile], num_keys[tile], keys, num_pairs + 1)
            pieces.append(Tiles(row, key_, column_, bool(masked[tile[0]]), hidden))
    return ListedPlan(pieces, layout.num_graphs, layout.most_nodes, num_pairs, None if listed else place)


def ragged(count: Tensor) -> tuple[Tensor, Tensor]:
    """Row and place within the row of every element of a ragged array."""
    row = torch.repeat_interleave(count)
    return row, torch.arange(row.numel(), device=count.device) - (count.cumsum(0) - count)[row]


def _padded(x: Tensor, start: Tensor, count: Tensor, width: int, fill: int) -> Tensor:
    """Rows ``x[start:start + count]`` as one tensor (n, width)."""
    column = torch.arange(width, device=x.device)
    inside = column < count[:, None]
    return torch.where(inside, x[torch.where(inside, start[:, None] + column, 0)], fill)


_PLANS: WeakKeyDictionary[TokenLayout, dict[object, tuple[Plan, Tensor | None]]] = WeakKeyDictionary()


def plan_of(layout: TokenLayout, pairs: Tensor | None, visible: Tensor | None, window: int | None, heads: int) -> Plan:
    """The plan for these pairs of nodes; kept with the layout, because all layers of a model ask for the same one."""
    hops = visible if pairs is None else pairs
    version = None if hops is None or hops.is_inference() else hops._version
    plans = _PLANS.setdefault(layout, {})
    if (name := (id(hops), version, window, heads)) not in plans:
        if len(plans) >= MAX_PLANS:
            plans.pop(next(iter(plans)))
        # hops is kept too, so that its id stays its own
        plans[name] = _make_plan(layout, pairs, visible, window, heads), hops
    return plans[name][0]


def _make_plan(
    layout: TokenLayout, pairs: Tensor | None, visible: Tensor | None, window: int | None, heads: int
) -> Plan:
    if layout.mode != "causal" and layout.num_tokens and window is not None and window > int(layout.position.max()):
        window = None
    listed = pairs is not None
    if pairs is not None:
        place = place_of(pairs, layout.num_nodes)
    elif visible is not None:
        inside = torch.arange(visible.size(1), device=visible.device) < layout.num_nodes[:, None]
        place = torch.nonzero(visible & inside[:, :, None] & inside[:, None]).T
    else:
        return dense_plan(layout, None, listed, window, heads)
    nodes = segments(layout, place)
    blocks = token_pairs(layout) + GRAPH * layout.num_graphs
    padded = listed and not fits_dense(layout, place.size(1))
    if padded or int(((nodes.count + GATHER) * nodes.num_keys).sum()) <= blocks:
        return listed_plan(layout, nodes, place, listed, window, heads)
    return dense_plan(layout, place, listed, window, heads)

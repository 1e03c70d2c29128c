"""Which queries meet which keys: index structures that depend on the layout only, built once per batch.

A plan cuts the queries into pieces. A piece knows its rows (queries), its keys, and how node pairs spread over them, so
that the arithmetic in ``blocked.py`` is the same for contiguous blocks and for gathered tiles. Inside, tokens are stored
as ``[H_kv, T + 1, G, D]``, G query heads per key head; place T is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout

# scores of one piece over all heads; two buffers of this size should stay in the last-level cache
PIECE_SCORES = 1 << 21
MAX_ROWS = 128
MAX_PLANS = 8
# gathered tiles pay below this part of all token pairs
DENSITY = 0.4

Hidden = Callable[[Tensor, Tensor], Tensor]
Place = tuple[Tensor, Tensor, Tensor]  # [P] each: graph, query's node and key's node within it


class Piece(Protocol):
    """Some queries and all the keys that they may see: n · H_kv = b independent products of R·G queries and L keys."""

    @property
    def size(self) -> tuple[int, int, int]:
        """n, R and L."""

    def rows(self, x: Tensor) -> Tensor:
        """Takes the queries' part of (H_kv, T + 1, G, D): (b, R·G, D)."""

    def keys(self, x: Tensor) -> Tensor:
        """Takes the keys' part of (H_kv, T + 1, D): (b, L, D)."""

    def set_rows(self, out: Tensor, x: Tensor) -> None:
        """Inverse of :meth:`rows`."""

    def add_keys(self, out: Tensor, x: Tensor) -> None:
        """Adjoint of :meth:`keys`."""

    def spread(self, bias: Tensor, out: Tensor) -> None:
        """Spreads the plan's padded bias over token pairs: (b, R·G, L)."""

    def add_spread(self, out: Tensor, x: Tensor) -> None:
        """Adjoint of :meth:`spread`."""

    def hide(self, score: Tensor) -> None:
        """Sets scores (b, R·G, L) of token pairs that the mode or the window hides to −∞."""


class Plan(Protocol):
    """The pieces, and the storage of the bias that they read."""

    @property
    def pieces(self) -> list[Piece]: ...

    def pad(self, bias: Tensor | None, like: Tensor) -> Tensor | None:
        """The bias in the pieces' order, with entries for what has none; ``like`` is (H_kv, T + 1, G, D)."""

    def unpad(self, grad: Tensor) -> Tensor:
        """Adjoint of :meth:`pad`."""


@dataclass(frozen=True)
class Block:
    """Consecutive queries of one graph and a consecutive run of its keys."""

    graph: int
    row: slice
    key: slice
    run_node: Tensor  # [U] node of every run of queries, N for no node
    run: Tensor  # [R] which run a query is in
    key_node: Tensor  # [L]
    tail: int  # keys before this one are not hidden from any row
    hidden: Hidden

    @property
    def size(self) -> tuple[int, int, int]:
        return 1, self.run.numel(), self.key_node.numel()

    def rows(self, x: Tensor) -> Tensor:
        return x[:, self.row].flatten(1, 2)

    def keys(self, x: Tensor) -> Tensor:
        return x[:, self.key]

    def set_rows(self, out: Tensor, x: Tensor) -> None:
        out[:, self.row] = x.view(x.size(0), -1, *out.shape[2:])

    def add_keys(self, out: Tensor, x: Tensor) -> None:
        out[:, self.key].add_(x)

    def spread(self, bias: Tensor, out: Tensor) -> None:
        part = bias[self.graph].index_select(1, self.run_node)  # [H_kv, U, G, N + 1]
        part = part.gather(3, self.key_node.expand(*part.shape[:3], -1))
        torch.index_select(part, 1, self.run, out=out.view(len(part), -1, *part.shape[2:]))

    def add_spread(self, out: Tensor, x: Tensor) -> None:
        heads, _, keys = x.shape
        group, num_runs = out.size(3), self.run_node.numel()
        if num_runs < self.run.numel():
            one_hot = self.run == torch.arange(num_runs, device=x.device)[:, None]  # [U, R]
            x = one_hot.to(x.dtype).expand(heads, -1, -1) @ x.view(heads, -1, group * keys)
        x = x.view(heads, num_runs, group, keys).to(out.dtype)
        part = out.new_zeros(heads, num_runs, group, out.size(4))
        part.scatter_add_(3, self.key_node.expand_as(x), x)
        out[self.graph].index_add_(1, self.run_node, part)

    def hide(self, score: Tensor) -> None:
        keys = torch.arange(self.key.start + self.tail, self.key.stop, device=score.device)
        if keys.numel():
            hidden = self.hidden(torch.arange(self.row.start, self.row.stop, device=score.device), keys)  # [R, L - tail]
            score.unflatten(1, (len(hidden), -1))[..., self.tail :].masked_fill_(hidden[:, None], -torch.inf)


@dataclass(frozen=True)
class DensePlan:
    """All pairs of nodes of a graph, hidden ones included. The bias becomes (B, H_kv, N + 1, G, N + 1)."""

    pieces: list[Piece]
    num_graphs: int
    num_nodes: int
    blind: Tensor | None  # [B, N + 1, N + 1] which node does not see which
    place: Place | None  # where listed pairs go

    def pad(self, bias: Tensor | None, like: Tensor) -> Tensor | None:
        if bias is None and self.blind is None:
            return None
        heads, _, group, _ = like.shape
        size = self.num_nodes + 1
        out = like.new_zeros(self.num_graphs, heads, size, group, size)
        if bias is not None and self.place is not None:
            graph, query, key = self.place
            out[graph, :, query, :, key] = bias.T.to(out.dtype).view(-1, heads, group)
        elif bias is not None:
            out[:, :, :-1, :, :-1] = bias.unflatten(1, (heads, group)).transpose(2, 3)
        out.diagonal(dim1=2, dim2=4).zero_()
        return out if self.blind is None else out.masked_fill_(self.blind[:, None, :, None], -torch.inf)

    def unpad(self, grad: Tensor) -> Tensor:
        grad.diagonal(dim1=2, dim2=4).zero_()
        if self.place is None:
            return grad[:, :, :-1, :, :-1].transpose(2, 3).flatten(1, 2)
        graph, query, key = self.place
        return grad[graph, :, query, :, key].flatten(1).T


@dataclass(frozen=True)
class Tiles:
    """For each of n nodes, (some of) its queries and the compact list of the keys that it sees; b = H_kv·n."""

    row: Tensor  # [n, R]
    key: Tensor  # [n, L]
    column: Tensor  # [n, L] which pair the key belongs to
    masked: bool
    hidden: Hidden

    @property
    def size(self) -> tuple[int, int, int]:
        return self.row.size(0), self.row.size(1), self.key.size(1)

    def rows(self, x: Tensor) -> Tensor:
        x = x.index_select(1, self.row.view(-1))  # [H_kv, n·R, G, D]
        return x.view(-1, self.row.size(1) * x.size(2), x.size(3))

    def keys(self, x: Tensor) -> Tensor:
        return x.index_select(1, self.key.view(-1)).view(-1, self.key.size(1), x.size(2))

    def set_rows(self, out: Tensor, x: Tensor) -> None:
        out.index_copy_(1, self.row.view(-1), x.view(out.size(0), -1, *out.shape[2:]))

    def add_keys(self, out: Tensor, x: Tensor) -> None:
        out.index_add_(1, self.key.view(-1), x.reshape(out.size(0), -1, out.size(2)).to(out.dtype))

    def spread(self, bias: Tensor, out: Tensor) -> None:
        heads, group, _ = bias.shape
        count, rows, keys = self.size
        part = bias.index_select(2, self.column.view(-1)).view(heads, group, count, 1, keys)
        out.view(heads, count, rows, group, keys).copy_(part.permute(0, 2, 3, 1, 4))

    def add_spread(self, out: Tensor, x: Tensor) -> None:
        heads, group, _ = out.shape
        x = x.view(heads, self.row.size(0), self.row.size(1), group, -1).sum(2, dtype=out.dtype)  # [H_kv, n, G, L]
        out.index_add_(2, self.column.view(-1), x.transpose(1, 2).flatten(2))

    def hide(self, score: Tensor) -> None:
        if self.masked:
            hidden = self.hidden(self.row, self.key)  # [n, R, L]
            score.view(-1, *hidden.shape[:2], score.size(1) // hidden.size(1), hidden.size(2)).masked_fill_(
                hidden[:, :, None], -torch.inf
            )


@dataclass(frozen=True)
class ListedPlan:
    """Listed pairs of nodes only. The bias becomes (H_kv, G, P + 2): column P is 0, column P + 1 hides padding."""

    pieces: list[Piece]
    num_graphs: int
    num_nodes: int
    num_pairs: int
    place: Place | None  # where the pairs lie in a dense bias

    def pad(self, bias: Tensor | None, like: Tensor) -> Tensor:
        out = like.new_zeros(like.size(0), like.size(2), self.num_pairs + 2)
        out[..., -1] = -torch.inf
        if bias is not None and self.place is not None:
            graph, query, key = self.place
            bias = bias[graph, :, query, key].T
        if bias is not None:
            out[..., :-2] = bias.reshape(*out.shape[:2], -1)
        return out

    def unpad(self, grad: Tensor) -> Tensor:
        grad = grad[..., :-2].flatten(0, 1)
        if self.place is None:
            return grad
        graph, query, key = self.place
        out = grad.new_zeros(self.num_graphs, grad.size(0), self.num_nodes, self.num_nodes)
        out[graph, :, query, key] = grad.T
        return out


def hidden_by(layout: TokenLayout, window: int | None) -> Hidden:
    """What of :meth:`TokenLayout.visible` is left inside a graph and between nodes that see each other.

    Shapes:
        - **rows** (\\*, R), **keys** (\\*, L) packed places, T for padding
        - **returns** (\\*, R, L) bool
    """
    mode, size = layout.mode, layout.num_tokens
    is_target, node, position = (torch.cat([x, x.new_zeros(1)]) for x in (layout.is_target, layout.node, layout.position))

    def hidden(rows: Tensor, keys: Tensor) -> Tensor:
        row, key = rows[..., :, None], keys[..., None, :]
        if mode == "causal":
            out = key > row
            far = row - key >= window if window is not None else None
        else:
            # the target stands last, so a context row is before every key of the target
            out = (key > row) & is_target[key] if mode == "prefix" else torch.zeros_like(key > row)
            far = None
            if window is not None:
                far = (node[row] == node[key]) & ((position[row] - position[key]).abs() >= window)
        if far is not None:
            out |= far
        return out & (row < size)  # a padded row must not become empty: 0/0

    return hidden


def dense_plan(
    layout: TokenLayout, place: Place | None, listed: bool, window: int | None, heads: int
) -> DensePlan:
    """Blocks of consecutive queries, each with the run of keys that its graph and mode leave."""
    hidden, size = hidden_by(layout, window), _most_nodes(layout)
    node = torch.where(layout.node < 0, size, layout.node)
    pieces: list[Piece] = []
    ptr = layout.graph_ptr.tolist()
    for graph, (start, stop) in enumerate(zip(ptr, ptr[1:], strict=False)):
        context = {"prefix": stop - int(layout.is_target[start:stop].sum()), "causal": start, "full": stop}[layout.mode]
        for low, high in _cuts(start, stop, min(MAX_ROWS, PIECE_SCORES // (heads * max(stop - start, 1)))):
            first = start if window is None or layout.mode != "causal" else max(start, low - window + 1)
            last = max(high, context)
            tail = max(low, context) - first if window is None else 0
            run_node, run = node[low:high].unique_consecutive(return_inverse=True)
            rows, keys = slice(low, high), slice(first, last)
            pieces.append(Block(graph, rows, keys, run_node, run, node[keys], tail, hidden))
    blind = None
    if place is not None:
        blind = torch.ones(layout.num_graphs, size + 1, size + 1, dtype=torch.bool, device=node.device)
        blind[place] = False
        blind[:, -1] = blind[:, :, -1] = False
        blind.diagonal(dim1=1, dim2=2).zero_()
    return DensePlan(pieces, layout.num_graphs, size, blind, place if listed else None)


def _most_nodes(layout: TokenLayout) -> int:
    return int(layout.num_nodes.max()) if layout.num_graphs else 0


def _cuts(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """Cuts a range into even parts of at most ``most``, in steps of 16 where that is possible."""
    if start == stop:
        return []
    parts = -(-(stop - start) // max(most, 16))
    step = -(-(stop - start) // parts)
    step = min(-(-step // 16) * 16, max(most, 16))
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


def segments(layout: TokenLayout, place: Place) -> Segments:
    """Tokens by node, with the pairs that the mode leaves, each node itself, and tokens of no node."""
    device, num_tokens, num_pairs = layout.node.device, layout.num_tokens, place[0].numel()
    start = layout.num_nodes.cumsum(0) - layout.num_nodes
    pairs = torch.stack(place[1:]) + start[place[0]]
    num_real, graph = int(layout.num_nodes.sum()), layout.graph
    node = torch.where(layout.node < 0, num_real + graph, start[graph] + layout.node)
    count = torch.bincount(node, minlength=num_real + layout.num_graphs)
    place = torch.arange(num_tokens, device=device)
    first = torch.full_like(count, num_tokens).scatter_reduce_(0, node, place, "amin")
    last = torch.full_like(count, -1).scatter_reduce_(0, node, place, "amax")
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
    layout: TokenLayout, seg: Segments, place: Place, listed: bool, window: int | None, heads: int
) -> ListedPlan:
    """Tiles of one node's queries and its compact key list; tiles of like size stand together, so padding is small."""
    hidden, num_tokens, num_pairs = hidden_by(layout, window), layout.num_tokens, place[0].numel()
    count, num_keys = seg.count, seg.num_keys
    of_pair, within = _ragged(count[seg.key])
    key = seg.token[seg.ptr[seg.key[of_pair]] + within]  # [E] key lists, one node after the other
    column = seg.column[of_pair]
    key_start = num_keys.cumsum(0) - num_keys

    node, part = _ragged(-(-count // MAX_ROWS))  # [n] tiles
    row_start = seg.ptr[node] + part * MAX_ROWS
    num_rows = (count[node] - part * MAX_ROWS).clamp(max=MAX_ROWS)
    num_keys, key_start = num_keys[node], key_start[node]
    masked = seg.is_target[node] if layout.mode == "prefix" else torch.full_like(node, layout.mode == "causal", dtype=torch.bool)
    masked |= window is not None
    size = torch.stack([masked.long(), *((2 * x.double().log2()).ceil().long() for x in (num_rows, num_keys))])
    pieces: list[Piece] = []
    for bucket in (size.T == size.T.unique(dim=0)[:, None]).all(-1):
        chosen = torch.nonzero(bucket).view(-1)
        rows, keys = int(num_rows[chosen].max()), int(num_keys[chosen].max())
        for tile in chosen.split(max(1, PIECE_SCORES // (rows * keys * heads))):
            row = _padded(seg.token, row_start[tile], num_rows[tile], rows, num_tokens)
            key_ = _padded(key, key_start[tile], num_keys[tile], keys, num_tokens)
            column_ = _padded(column, key_start[tile], num_keys[tile], keys, num_pairs + 1)
            pieces.append(Tiles(row, key_, column_, bool(masked[tile[0]]), hidden))
    return ListedPlan(pieces, layout.num_graphs, _most_nodes(layout), num_pairs, None if listed else place)


def _ragged(count: Tensor) -> tuple[Tensor, Tensor]:
    """Row and place within the row of every element of a ragged array."""
    row = torch.repeat_interleave(count)
    return row, torch.arange(row.numel(), device=count.device) - (count.cumsum(0) - count)[row]


def _padded(x: Tensor, start: Tensor, count: Tensor, width: int, fill: int) -> Tensor:
    """Rows ``x[start:start + count]`` as one tensor (n, width)."""
    column = torch.arange(width, device=x.device)
    inside = column < count[:, None]
    return torch.where(inside, x[torch.where(inside, start[:, None] + column, 0)], fill)


_PLANS: WeakKeyDictionary[TokenLayout, dict[object, tuple[Plan, Tensor | None]]] = WeakKeyDictionary()


def plan_of(
    layout: TokenLayout, pairs: Tensor | None, visible: Tensor | None, window: int | None, heads: int
) -> Plan:
    """The plan for these pairs of nodes; kept with the layout, because all layers of a model ask for the same one."""
    hops = visible if pairs is None else pairs
    version = None if hops is None or hops.is_inference() else hops._version
    plans = _PLANS.setdefault(layout, {})
    if (name := (id(hops), version, window, heads)) not in plans:
        if len(plans) >= MAX_PLANS:
            plans.pop(next(iter(plans)))
        plans[name] = _make_plan(layout, pairs, visible, window, heads), hops  # keeps hops alive, so its id stays its own
    return plans[name][0]


def _make_plan(
    layout: TokenLayout, pairs: Tensor | None, visible: Tensor | None, window: int | None, heads: int
) -> Plan:
    if layout.mode != "causal" and layout.num_tokens and window is not None and window > int(layout.position.max()):
        window = None
    listed = pairs is not None
    if pairs is not None:
        graph = torch.repeat_interleave(layout.num_nodes)
        start = layout.num_nodes.cumsum(0) - layout.num_nodes
        place: Place = (graph[pairs[0]], *(pairs - start[graph[pairs]]))
    elif visible is not None:
        node = torch.arange(visible.size(1), device=visible.device) < layout.num_nodes[:, None]
        place = torch.nonzero(visible & node[:, :, None] & node[:, None], as_tuple=True)
    else:
        return dense_plan(layout, None, listed, window, heads)
    seg = segments(layout, place)
    if int((seg.count * seg.num_keys).sum()) <= DENSITY * int(layout.graph_ptr.diff().square().sum()):
        return listed_plan(layout, seg, place, listed, window, heads)
    return dense_plan(layout, place, listed, window, heads)

"""Parts of an attention matrix: which queries meet which keys, and how node pairs spread over them.

The arithmetic in ``blocked.py`` is the same for contiguous blocks and for gathered tiles. Inside, tokens are stored as
``[H_kv, T + 1, G, D]``, G query heads per key head; place T is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Hidden = Callable[[Tensor, Tensor], Tensor]


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
            rows = torch.arange(self.row.start, self.row.stop, device=score.device)
            score = score.unflatten(1, (rows.numel(), -1))[..., self.tail :]  # [b, R, G, L - tail]
            score.masked_fill_(self.hidden(rows, keys)[:, None], -torch.inf)


@dataclass(frozen=True)
class DensePlan:
    """All pairs of nodes of a graph, hidden ones included. The bias becomes (B, H_kv, N + 1, G, N + 1)."""

    pieces: list[Piece]
    num_graphs: int
    num_nodes: int
    blind: Tensor | None  # [B, N + 1, N + 1] which node does not see which
    place: Tensor | None  # [3, P] graph, query's and key's node: where listed pairs go

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
            count, rows, keys = self.size
            score = score.view(-1, count, rows, score.size(1) // rows, keys)
            score.masked_fill_(self.hidden(self.row, self.key)[:, :, None], -torch.inf)


@dataclass(frozen=True)
class ListedPlan:
    """Listed pairs of nodes only. The bias becomes (H_kv, G, P + 2): column P is 0, column P + 1 hides padding."""

    pieces: list[Piece]
    num_graphs: int
    num_nodes: int
    num_pairs: int
    place: Tensor | None  # [3, P] where the pairs lie in a dense bias

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

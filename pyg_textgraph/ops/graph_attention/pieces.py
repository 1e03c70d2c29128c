"""Parts of an attention matrix: which queries meet which keys, and how node pairs spread over them.

The arithmetic in ``blocked.py`` is the same for contiguous blocks and for gathered tiles. Tokens come as (h, S, G, D):
some key heads, each with the G query heads that share it, and the S places of ``plans.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Hidden = Callable[[Tensor, Tensor], Tensor]


class Piece(Protocol):
    """Some queries and all the keys that they may see: n · h = b independent products of R·G queries and L keys."""

    @property
    def size(self) -> tuple[int, int, int]:
        """n, R and L."""

    def rows(self, x: Tensor) -> Tensor:
        """Takes the queries' part of (h, S, G, D): (b, R·G, D)."""

    def keys(self, x: Tensor) -> Tensor:
        """Takes the keys' part of (h, S, D): (b, L, D)."""

    def set_rows(self, out: Tensor, x: Tensor) -> None:
        """Inverse of :meth:`rows`."""

    def add_keys(self, out: Tensor, x: Tensor) -> None:
        """Adjoint of :meth:`keys`."""

    def spread(self, bias: Tensor, out: Tensor) -> None:
        """Spreads the plan's padded bias over token pairs: (b, R·G, L)."""

    def sum_spread(self, x: Tensor, group: int, dtype: torch.dtype) -> Tensor:
        """First half of the adjoint of :meth:`spread`: sums within the piece; takes (b, R·G, L)."""

    def add_sums(self, out: Tensor, sums: Tensor) -> None:
        """Second half, where pieces meet."""

    def hide(self, score: Tensor) -> None:
        """Sets scores (b, R·G, L) of token pairs that the mode or the window hides to −∞."""


@dataclass(frozen=True)
class Block:
    """Consecutive queries of one graph and a consecutive run of its keys."""

    start: int  # where its graph starts
    row: slice  # places within the graph
    key: slice
    run_node: Tensor  # [U] node of every run of queries, N for no node
    run: Tensor  # [R] which run a query is in
    key_node: Tensor  # [L]
    num_nodes: int  # N
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
        part = bias.index_select(1, self.run_node)  # [h, U, G, N + 1]
        part = part.gather(3, self.key_node.expand(*part.shape[:3], -1))
        torch.index_select(part, 1, self.run, out=out.view(len(part), -1, *part.shape[2:]))

    def sum_spread(self, x: Tensor, group: int, dtype: torch.dtype) -> Tensor:
        heads, _, keys = x.shape
        num_runs = self.run_node.numel()
        if num_runs < self.run.numel():
            one_hot = self.run == torch.arange(num_runs, device=x.device)[:, None]  # [U, R]
            x = torch.bmm(one_hot.to(x.dtype).expand(heads, -1, -1), x.view(heads, -1, group * keys))
        x = x.view(heads, num_runs, group, keys).to(dtype)
        out = x.new_zeros(heads, num_runs, group, self.num_nodes + 1)
        return out.scatter_add_(3, self.key_node.expand_as(x), x)

    def add_sums(self, out: Tensor, sums: Tensor) -> None:
        out.index_add_(1, self.run_node, sums)

    def hide(self, score: Tensor) -> None:
        if self.key.start + self.tail < self.key.stop:
            first, device = self.key.start + self.tail, score.device
            keys = torch.arange(self.start + first, self.start + self.key.stop, device=device)
            rows = torch.arange(self.start + self.row.start, self.start + self.row.stop, device=device)
            score = score.unflatten(1, (rows.numel(), -1))[..., self.tail :]  # [b, R, G, L - tail]
            score.masked_fill_(self.hidden(rows, keys)[:, None], -torch.inf)


@dataclass(frozen=True)
class Tiles:
    """For each of n nodes, (some of) its queries and the compact list of the keys that it sees; b = h·n."""

    row: Tensor  # [n, R]
    key: Tensor  # [n, L]
    column: Tensor  # [n, L] which pair the key belongs to
    masked: bool
    hidden: Hidden

    @property
    def size(self) -> tuple[int, int, int]:
        return self.row.size(0), self.row.size(1), self.key.size(1)

    def rows(self, x: Tensor) -> Tensor:
        x = x.index_select(1, self.row.view(-1))  # [h, n·R, G, D]
        return x.view(-1, self.row.size(1) * x.size(2), x.size(3))

    def keys(self, x: Tensor) -> Tensor:
        return x.index_select(1, self.key.view(-1)).view(-1, self.key.size(1), x.size(2))

    def set_rows(self, out: Tensor, x: Tensor) -> None:
        out.index_copy_(1, self.row.view(-1), x.view(out.size(0), -1, *out.shape[2:]))

    def add_keys(self, out: Tensor, x: Tensor) -> None:
        # one head at a time is four times faster
        for head, part in zip(out, x.reshape(out.size(0), -1, out.size(2)), strict=True):
            head.index_add_(0, self.key.view(-1), part.to(out.dtype))

    def spread(self, bias: Tensor, out: Tensor) -> None:
        heads, group, _ = bias.shape
        count, rows, keys = self.size
        part = bias.index_select(2, self.column.view(-1)).view(heads, group, count, 1, keys)
        out.view(heads, count, rows, group, keys).copy_(part.permute(0, 2, 3, 1, 4))

    def sum_spread(self, x: Tensor, group: int, dtype: torch.dtype) -> Tensor:
        count, rows, keys = self.size
        x = x.view(-1, count, rows, group, keys).sum(2, dtype=dtype)  # [h, n, G, L]
        return x.transpose(1, 2).flatten(2)

    def add_sums(self, out: Tensor, sums: Tensor) -> None:
        out.index_add_(2, self.column.view(-1), sums)

    def hide(self, score: Tensor) -> None:
        if self.masked:
            count, rows, keys = self.size
            score = score.view(-1, count, rows, score.size(1) // rows, keys)
            score.masked_fill_(self.hidden(self.row, self.key)[:, :, None], -torch.inf)

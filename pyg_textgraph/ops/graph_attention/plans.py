"""How pieces are dealt out to threads, and how tokens and biases are stored for them.

A group is some heads of one graph, or of the whole batch where tokens are gathered. It adds up its gradients on its own
and in a fixed order, so results do not depend on which thread does what.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import heapreplace
from typing import Protocol

import torch
from torch import Tensor

from pyg_textgraph.ops.graph_attention.pieces import Piece

MAX_IMBALANCE = 1.12


@dataclass(frozen=True)
class Group:
    """Pieces of some key heads, in units that can be done at the same time."""

    graph: int
    tokens: slice
    heads: slice  # of the keys
    units: list[list[Piece]]

    @property
    def cost(self) -> int:
        return (self.heads.stop - self.heads.start) * sum(cost_of(piece) for unit in self.units for piece in unit)

    def part(self, x: Tensor) -> Tensor:
        """The group's part of x (T, H_kv, G, D): (h, tokens, G, D)."""
        return x[self.tokens, self.heads].transpose(0, 1)


@dataclass(frozen=True)
class Split:
    """How one graph is dealt out.

    Args:
        num_heads: Query heads.
        num_kv_heads: Key heads.
        together: Key heads of a group.
        units: Of a group.
    """

    num_heads: int
    num_kv_heads: int
    together: int
    units: int = 1

    @property
    def heads(self) -> int:
        """Query heads of a group."""
        return self.num_heads * self.together // self.num_kv_heads

    @property
    def tasks(self) -> int:
        return self.num_kv_heads // self.together * self.units

    @property
    def finer(self) -> Split:
        """By heads first: that costs nothing but more and smaller operations."""
        return replace(self, together=1, units=self.units + (self.together == 1))

    def groups(self, graph: int, tokens: slice, pieces: list[Piece]) -> list[Group]:
        """Deals the pieces to units, the largest first, each to the unit that has least."""
        units: list[list[Piece]] = [[] for _ in range(min(self.units, len(pieces)))]
        load = [0] * len(units)
        for piece in sorted(pieces, key=cost_of, reverse=True):
            least = load.index(min(load))
            load[least] += cost_of(piece)
            units[least].append(piece)
        starts = range(0, self.num_kv_heads, self.together)
        return [Group(graph, tokens, slice(head, head + self.together), units) for head in starts]


def cost_of(piece: Piece) -> int:
    return math.prod(piece.size)


def splits(costs: list[float], num_heads: int, num_kv_heads: int, threads: int) -> list[Split]:
    """One split per graph, just fine enough to give all threads about the same work."""
    out = [Split(num_heads, num_kv_heads, num_kv_heads) for _ in costs]
    while threads > 1 and (tasks := _tasks(costs, out)) and _imbalance(tasks, threads) > MAX_IMBALANCE:
        out = [x.finer if cost / x.tasks >= 0.9 * tasks[0] else x for cost, x in zip(costs, out, strict=True)]
    return out


def _tasks(costs: list[float], splits: list[Split]) -> list[float]:
    tasks = (part for cost, x in zip(costs, splits, strict=True) for part in [cost / x.tasks] * x.tasks if cost > 0)
    return sorted(tasks, reverse=True)


def _imbalance(tasks: list[float], threads: int) -> float:
    """The busiest thread's work beside the mean, if every task goes to the first free thread."""
    load = [0.0] * threads
    for task in tasks:
        heapreplace(load, load[0] + task)
    return max(load) * threads / sum(load)


class Plan(Protocol):
    """Groups of pieces, and how their tokens and biases are stored."""

    @property
    def groups(self) -> list[Group]: ...

    def load(self, x: Tensor, group: Group) -> Tensor:
        """A group's part of (T, H_kv, G, D) as pieces want it: (h, S, G, D)."""

    def room(self, x: Tensor, group: Group) -> Tensor:
        """Where pieces write a part of x, (h, S, G, D)."""

    def store(self, x: Tensor, room: Tensor, group: Group) -> None:
        """What :meth:`room` gave, filled by the pieces, goes to its part of x (T, H_kv, G, D)."""

    def pad(self, bias: Tensor | None, group: Group, like: Tensor) -> Tensor | None:
        """A group's bias in the pieces' order, with entries for what has none; ``like`` is (h, S, G, D)."""

    def unpad(self, out: Tensor, grad: Tensor, group: Group) -> None:
        """Adjoint of :meth:`pad`: writes the group's part of the bias' gradient."""


def query_heads(group: Group, size: int) -> slice:
    """The query heads of a group, ``size`` for each of its key heads."""
    return slice(group.heads.start * size, group.heads.stop * size)


@dataclass(frozen=True)
class DensePlan:
    """All pairs of nodes of a graph, hidden ones included.

    Places are the graph's tokens; the bias becomes (h, N + 1, G, N + 1), the last row and column for tokens of no node.
    """

    groups: list[Group]
    num_nodes: int
    blind: Tensor | None  # [B, N + 1, N + 1] which node does not see which
    place: list[tuple[Tensor, Tensor, Tensor]] | None  # of every graph: which listed pairs, query's and key's node

    def load(self, x: Tensor, group: Group) -> Tensor:
        return group.part(x)

    def room(self, x: Tensor, group: Group) -> Tensor:
        return group.part(x)

    def store(self, x: Tensor, room: Tensor, group: Group) -> None:
        """The room is a view of x."""

    def pad(self, bias: Tensor | None, group: Group, like: Tensor) -> Tensor | None:
        if bias is None and self.blind is None:
            return None
        (heads, _, share, _), size = like.shape, self.num_nodes + 1
        of_queries = query_heads(group, share)
        out = like.new_zeros(heads, size, share, size)
        if bias is not None and self.place is not None:
            column, query, key = self.place[group.graph]
            out[:, query, :, key] = bias[of_queries, column].T.to(out.dtype).view(-1, heads, share)
        elif bias is not None:
            out[:, :-1, :, :-1] = bias[group.graph, of_queries].unflatten(0, (heads, share)).transpose(1, 2)
        out.diagonal(dim1=1, dim2=3).zero_()
        return out if self.blind is None else out.masked_fill_(self.blind[group.graph, :, None], -torch.inf)

    def unpad(self, out: Tensor, grad: Tensor, group: Group) -> None:
        of_queries = query_heads(group, grad.size(2))
        grad.diagonal(dim1=1, dim2=3).zero_()
        if self.place is None:
            out[group.graph, of_queries] = grad[:, :-1, :, :-1].transpose(1, 2).flatten(0, 1).to(out.dtype)
        else:
            column, query, key = self.place[group.graph]
            out[of_queries, column] = grad[:, query, :, key].flatten(1).T.to(out.dtype)


@dataclass(frozen=True)
class ListedPlan:
    """Listed pairs of nodes only.

    Places are the batch's tokens and one more for padding; the bias becomes (h, G, P + 2): column P is 0, column P + 1
    hides padding.
    """

    groups: list[Group]
    num_pairs: int
    place: Tensor | None  # [3, P] where the pairs lie in a dense bias

    def load(self, x: Tensor, group: Group) -> Tensor:
        out = self.room(x, group)
        out[:, :-1] = group.part(x)
        out[:, -1] = 0
        return out

    def room(self, x: Tensor, group: Group) -> Tensor:
        return x.new_empty(group.heads.stop - group.heads.start, x.size(0) + 1, *x.shape[2:])

    def store(self, x: Tensor, room: Tensor, group: Group) -> None:
        group.part(x).copy_(room[:, :-1])

    def pad(self, bias: Tensor | None, group: Group, like: Tensor) -> Tensor:
        heads, _, share, _ = like.shape
        out = like.new_zeros(heads, share, self.num_pairs + 2)
        out[..., -1] = -torch.inf
        if bias is not None and self.place is not None:
            graph, query, key = self.place
            bias = bias[:, query_heads(group, share)][graph, :, query, key].T
        elif bias is not None:
            bias = bias[query_heads(group, share)]
        if bias is not None:
            out[..., :-2] = bias.unflatten(0, (heads, share))
        return out

    def unpad(self, out: Tensor, grad: Tensor, group: Group) -> None:
        of_queries = query_heads(group, grad.size(1))
        grad = grad[..., :-2].flatten(0, 1).to(out.dtype)
        if self.place is None:
            out[of_queries] = grad
        else:
            graph, query, key = self.place
            part = out[:, of_queries].zero_()
            part[graph, :, query, key] = grad.T

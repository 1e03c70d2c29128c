"""What the Triton kernels need to know about the tokens of a batch: computed once, in plain torch, on its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.triton_lists import ListPlan


@dataclass(frozen=True)
class Segments:
    """Runs of tokens of one node inside a tile, numbered within their graph."""

    of_token: Tensor  # [T]
    ptr: Tensor  # [B + 1] where a graph's segments start
    pair_ptr: Tensor  # [B + 1] where its pairs of segments start, row-major
    by_node: Tensor  # segments of nodes, one node of the batch after the other
    node_ptr: Tensor  # [B·N + 1]
    in_tile: int  # the most segments of a tile
    in_node: int  # and of a node
    num_pairs: int


class TilePlan:
    """Tokens as 32-bit integers, and cuts of the graphs into tiles of any size.

    The three modes are one rule: a query sees the keys before ``limit`` (one number per graph), and beyond only those
    that do not come after itself.
    """

    def __init__(self, graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, mode: str) -> None:
        self.graph = torch.repeat_interleave(graph_ptr.diff())  # [T]
        self.graph_ptr = graph_ptr.to(torch.int32, copy=True)
        self.node = node.to(torch.int32, copy=True)  # a plan must not keep alive what it is cached by
        self.sequence = mode == "causal"  # whether a window counts places in the sequence
        self.at = (torch.arange(len(node), device=node.device) if self.sequence else position).int()
        start, stop = self.graph_ptr[:-1], self.graph_ptr[1:]
        targets = torch.zeros_like(stop).index_add_(0, self.graph, is_target.int())
        self.limit = {"prefix": stop - targets, "causal": start.clone(), "full": stop.clone()}[mode]  # [B]
        self._tiles: dict[int, Tensor] = {}
        self._segments: dict[tuple[int, int], Segments] = {}
        self._lists: tuple[object, ListPlan] | None = None

    def tiles(self, size: int) -> Tensor:
        """Graph and first token of every tile of ``size`` tokens, (n, 2)."""
        if size not in self._tiles:
            self._tiles[size] = torch.stack([self.graph, self._places], dim=1)[self._within % size == 0].int()
        return self._tiles[size]

    def segments(self, size: int, nodes: int) -> Segments:
        """Segments in tiles of ``size`` tokens; ``nodes`` is N of the bias."""
        if (size, nodes) not in self._segments:
            self._segments[size, nodes] = self._make_segments(size, nodes)
        return self._segments[size, nodes]

    def lists(self, layout: TokenLayout, pairs: Tensor) -> ListPlan:
        """Lists of what sees what; the last one is kept, as all layers of a model ask for the same pairs."""
        version = (id(pairs), None if pairs.is_inference() else pairs._version)
        if self._lists is None or self._lists[0] != version:
            self._lists, self._pairs = (version, ListPlan(layout, pairs)), pairs  # kept, so that its id stays its own
        return self._lists[1]

    @property
    def _places(self) -> Tensor:
        return torch.arange(self.graph.numel(), device=self.graph.device)

    @property
    def _within(self) -> Tensor:
        return self._places - self.graph_ptr[self.graph]

    def _make_segments(self, size: int, nodes: int) -> Segments:
        starts_tile = self._within % size == 0
        starts = starts_tile.clone()
        starts[1:] |= self.node[1:] != self.node[:-1]
        first = torch.nonzero(starts).view(-1)
        graph, node = self.graph[first], self.node[first]
        ptr = _offsets(torch.bincount(graph, minlength=self.limit.numel()))
        of_token = starts.cumsum(0) - 1 - ptr[self.graph]
        in_tile = torch.bincount(starts_tile.cumsum(0)[first])
        order = (graph * nodes + node).masked_fill(node < 0, -1).argsort(stable=True)[int((node < 0).sum()) :]
        per_node = torch.bincount((graph * nodes + node)[order], minlength=self.limit.numel() * nodes)
        pair_ptr = _offsets(ptr.diff().square())
        return Segments(
            of_token=of_token.int(),
            ptr=ptr.int(),
            pair_ptr=pair_ptr,
            by_node=of_token[first][order].int(),
            node_ptr=_offsets(per_node).int(),
            in_tile=int(in_tile.max()),
            in_node=int(per_node.max()),
            num_pairs=int(pair_ptr[-1]),
        )


def _offsets(count: Tensor) -> Tensor:
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


_PLANS: Any = WeakTensorKeyDictionary()


def tile_plan(graph_ptr: Tensor, node: Tensor, position: Tensor, is_target: Tensor, mode: str) -> TilePlan:
    """The plan of these tokens, kept as long as ``node`` lives: all layers of a model ask for the same one."""
    known = _PLANS.setdefault(node, [])
    for *tensors, known_mode, plan in known:
        same = all(x is y for x, y in zip(tensors, (graph_ptr, position, is_target), strict=True))
        if same and known_mode == mode:
            return plan
    plan = TilePlan(graph_ptr, node, position, is_target, mode)
    known.append((graph_ptr, position, is_target, mode, plan))
    return plan

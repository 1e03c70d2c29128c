"""Lists of the tokens that every node's tokens meet, for the kernels of listed pairs; plain torch, once per batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.plan import Segments, fits_dense, ragged, segments, token_pairs
from pyg_textgraph.ops.graph_attention.reference import place_of, spread_pairs

CROWDED = 0.5  # a gathered score costs about as much as two of a tile of consecutive tokens


@dataclass(frozen=True)
class Lists:
    """Tiles of tokens of one node and their lists; see ``triton_listed.py`` for the columns of ``tiles``."""

    tiles: Tensor  # [n, 6]
    entry: Tensor  # [E] tokens
    column: Tensor  # [E] their pairs
    num_entries: int  # of all tiles together: a node with several tiles has several lists

    @property
    def args(self) -> dict[str, Tensor]:
        return {"tiles": self.tiles, "entry": self.entry, "column": self.column}


@dataclass(frozen=True)
class PairRuns:
    """Where the entries of every pair stand in the lists of queries; see ``pair_kernel``."""

    runs: Tensor  # [P, 4]
    most: int
    most_tiles: int


class ListPlan:
    """Both directions: what queries see, and what keys are seen by."""

    def __init__(self, layout: TokenLayout, pairs: Tensor) -> None:
        self.place = place_of(pairs, layout.num_nodes)
        self.nodes = segments(layout, self.place)
        self.num_pairs = pairs.size(1)
        self.size = layout.num_graphs, layout.most_nodes
        dense = fits_dense(layout, self.num_pairs)
        self.crowded = dense and int((self.nodes.count * self.nodes.num_keys).sum()) > CROWDED * token_pairs(layout)
        graph = torch.repeat_interleave(layout.num_nodes)  # the graph of every node, then that of its tokens of no node
        self.graph = torch.cat([graph, torch.arange(layout.num_graphs, device=graph.device)])  # [M]
        self.token = self.nodes.token.int()
        self.longest = int(self.nodes.count.max()) if layout.num_tokens else 0
        self._lists: dict[tuple[bool, int], Lists] = {}

    def to_dense(self, bias: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Bias (B, H, N, N) of listed biases (H, P), and which node sees which (B, N, N)."""
        return spread_pairs(self.place, bias, *self.size)

    def from_dense(self, grad: Tensor) -> Tensor:
        """Adjoint of :meth:`to_dense`."""
        graph, query, key = self.place
        return grad[graph, :, query, key].T

    def lists(self, size: int, of_keys: bool = False) -> Lists:
        """Tiles of ``size`` queries and their keys, or of ``size`` keys and their queries."""
        if (of_keys, size) not in self._lists:
            nodes, order = self.nodes, torch.arange(self.nodes.query.numel(), device=self.token.device)
            own, other = nodes.query, nodes.key
            if of_keys:
                order = nodes.key.argsort(stable=True)
                own, other = nodes.key[order], nodes.query[order]
            self._lists[of_keys, size] = self._make_lists(own, other, nodes.column[order], size)
        return self._lists[of_keys, size]

    def pair_runs(self, size: int) -> PairRuns:
        """For the lists of tiles of ``size`` queries."""
        nodes, lists = self.nodes, self.lists(size)
        parts = -(-nodes.count // size)
        length, count = nodes.num_keys, nodes.count[nodes.key]
        within = (count.cumsum(0) - count) - (length.cumsum(0) - length)[nodes.query]
        per_node = parts * length
        start = (per_node.cumsum(0) - per_node)[nodes.query] + within
        listed = nodes.column < self.num_pairs
        runs = torch.zeros(self.num_pairs, 4, dtype=torch.int32, device=start.device)
        values = torch.stack([start, count, parts[nodes.query], length[nodes.query]], dim=1)[listed]
        runs[nodes.column[listed]] = values.int()
        assert lists.num_entries < 2**31
        return PairRuns(runs, int(runs[:, 1].max()) if len(runs) else 0, int(parts.max()) if len(parts) else 0)

    def _make_lists(self, own: Tensor, other: Tensor, column: Tensor, size: int) -> Lists:
        nodes: Segments = self.nodes
        of_pair, within = ragged(nodes.count[other])
        entry = nodes.token[nodes.ptr[other[of_pair]] + within]
        length = torch.zeros_like(nodes.count).index_add_(0, own, nodes.count[other])
        start = length.cumsum(0) - length
        node, part = ragged(-(-nodes.count // size))
        low = nodes.ptr[node] + part * size
        high = torch.minimum(low + size, nodes.ptr[node + 1])
        slot = length[node].cumsum(0) - length[node]
        tiles = torch.stack([low, high, start[node], start[node] + length[node], slot, self.graph[node]], dim=1)
        return Lists(tiles.int(), entry.int(), column[of_pair].int(), int(length[node].sum()))

"""Soft pointers between tokens or nodes, the state that a Graph Machine carries."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, repr=False)
class SparseEdges:
    """k weighted pointers per token, each spread over at most s tokens (GM-2, arXiv 2609.02881).

    Shapes:
        - **index** (\\*, n, k, s), int32: which token of the same sequence
        - **weight** (\\*, n, k, s), non-negative; an edge sums to one, or to zero if it points nowhere
    """

    index: Tensor
    weight: Tensor

    @property
    def num_edges(self) -> int:
        return self.index.size(-2)

    @property
    def num_pointers(self) -> int:
        return self.index.size(-1)

    def validate(self, size: int | None = None) -> "SparseEdges":
        """Checks the values, which costs a pass over them.

        Args:
            size: Number of tokens that may be pointed to; n by default.

        Raises:
            ValueError: If shapes differ, an index is out of range, or an edge's weights are negative or do not sum to
                one or zero.
        """
        size = self.index.size(-3) if size is None else size
        if self.index.shape != self.weight.shape or self.index.dim() < 3:
            raise ValueError(
                f"SparseEdges: 'index' is {tuple(self.index.shape)} and 'weight' {tuple(self.weight.shape)}, "
                "expected two of (*, n, k, s)"
            )
        if self.index.is_floating_point():
            raise ValueError(f"SparseEdges: 'index' is {self.index.dtype}, expected integers")
        if (outside := self.index[(self.index < 0) | (self.index >= size)]).numel():
            raise ValueError(f"SparseEdges: 'index' points to {int(outside[0])} but there are {size} tokens")
        total = self.weight.sum(-1)
        if bool((self.weight < 0).any()) or not bool((((total - 1).abs() < 1e-3) | (total == 0)).all()):
            raise ValueError("SparseEdges: the weights of an edge must be non-negative and sum to one, or all be zero")
        return self

    @classmethod
    def causal_window(
        cls, n: int, k: int, *, past: int = 0, start: Tensor | None = None, device: torch.device | str | None = None
    ) -> "SparseEdges":
        """The initial edges of a text: k edges to the token itself and the k−1 before it, the nearest last.

        Args:
            n: Number of tokens.
            k: Edges per token.
            past: Position of the first of them.
            start: (B,), first token of each sequence behind left padding; edges never point before it.
            device: Where the edges live.

        Shapes:
            - **index**, **weight** (n, k, 1), or (B, n, k, 1) with `start`
        """
        token = torch.arange(past, past + n, dtype=torch.int32, device=device).view(n, 1, 1)
        back = torch.arange(1 - k, 1, dtype=torch.int32, device=device).view(k, 1)
        floor = torch.zeros_like(token) if start is None else torch.minimum(token, start.int().view(-1, 1, 1, 1))
        index = torch.maximum(token + back, floor)
        return cls(index, torch.ones_like(index, dtype=torch.float32))

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int, k: int, s: int, edge_weight: Tensor | None = None
    ) -> "SparseEdges":
        """Lets every node point to the sources of its incoming edges, so that information flows along the edges.

        A node's k·s heaviest sources (ties in the order given) are dealt to its k edges in turn; an edge that gets none
        points to the node itself. Parallel edges count as one, with their weights added.

        Args:
            edge_index: (2, E), of one graph or of a PyG batch.
            num_nodes: Number of nodes.
            k: Edges per node.
            s: Pointers per edge.
            edge_weight: (E,), positive; ones by default.

        Shapes:
            - **index**, **weight** (num_nodes, k, s)

        Raises:
            ValueError: If a node is out of range, or a weight is not finite and positive.
        """
        if (outside := edge_index[(edge_index < 0) | (edge_index >= num_nodes)]).numel():
            raise ValueError(
                f"SparseEdges: 'edge_index' holds node {int(outside[0])} but the graph has {num_nodes} nodes"
            )
        if edge_weight is not None:
            wrong = edge_weight[~(edge_weight.isfinite() & (edge_weight > 0))]
            if wrong.numel():
                raise ValueError(f"SparseEdges: 'edge_weight' holds {float(wrong[0])}, expected finite numbers above 0")
        source, target = edge_index
        pair, place = (target * num_nodes + source).unique(return_inverse=True)
        ones = torch.ones(source.numel(), device=source.device) if edge_weight is None else edge_weight.view(-1)
        weight = ones.new_zeros(pair.numel()).index_add_(0, place, ones)
        if edge_weight is None:
            weight.fill_(1)
        position = torch.arange(len(place), device=place.device)
        seen = torch.full_like(pair, len(place)).scatter_reduce_(0, place, position, "amin")  # first occurrence
        order = seen.argsort()
        order = order[weight[order].argsort(descending=True, stable=True)]
        order = order[(pair[order] // num_nodes).argsort(stable=True)]  # by node, heaviest first
        node, source, weight = pair[order] // num_nodes, pair[order] % num_nodes, weight[order]
        rank = torch.arange(len(node), device=node.device) - torch.searchsorted(node, node)
        kept = rank < k * s
        node, source, weight, rank = node[kept], source[kept], weight[kept], rank[kept]
        index = torch.zeros(num_nodes, k, s, dtype=torch.int32, device=node.device)
        dealt = torch.zeros(num_nodes, k, s, dtype=weight.dtype, device=node.device)
        index[node, rank % k, rank // k] = source.int()
        dealt[node, rank % k, rank // k] = weight
        own = torch.arange(num_nodes, dtype=torch.int32, device=node.device).unsqueeze(-1)
        free = dealt[..., 0] == 0
        index[..., 0] = torch.where(free, own, index[..., 0])
        dealt[..., 0] = torch.where(free, 1, dealt[..., 0])
        return cls(index, dealt / dealt.sum(-1, keepdim=True))

    def nearest(self, count: int) -> "SparseEdges":
        """The last `count` edges: of a causal window, those to the nearest tokens."""
        first = max(0, self.num_edges - count)
        return SparseEdges(self.index[..., first:, :], self.weight[..., first:, :])

    def pad(self, s: int) -> "SparseEdges":
        """Appends empty slots up to s pointers per edge.

        Raises:
            ValueError: If edges have more.
        """
        if s < self.num_pointers:
            raise ValueError(f"SparseEdges: 's' is {s} but edges have {self.num_pointers} pointers; see ops.sparsify")
        missing = (0, s - self.num_pointers)
        return self if missing[1] == 0 else SparseEdges(F.pad(self.index, missing), F.pad(self.weight, missing))

    @staticmethod
    def cat(parts: Sequence["SparseEdges"]) -> "SparseEdges":
        """The edges of several states of the same tokens, side by side."""
        return SparseEdges(torch.cat([p.index for p in parts], -2), torch.cat([p.weight for p in parts], -2))

    def to_dense(self, size: int | None = None) -> Tensor:
        """One weighted adjacency matrix per edge channel, (\\*, k, n, size)."""
        size = self.index.size(-3) if size is None else size
        dense = self.weight.new_zeros(*self.index.shape[:-1], size)
        return dense.scatter_add(-1, self.index.long(), self.weight).transpose(-2, -3)

    def to_edge_index(self) -> tuple[Tensor, Tensor, Tensor]:
        """All pointers of one sequence as PyG edges, source → target = the token pointed to → the token that points.

        Shapes:
            - **returns** edge_index (2, E), weight (E,) and edge channel (E,)
        """
        if self.index.dim() != 3:
            raise ValueError(f"SparseEdges: to_edge_index takes one sequence, got 'index' {tuple(self.index.shape)}")
        target, channel, slot = (self.weight > 0).nonzero(as_tuple=True)
        source = self.index[target, channel, slot].long()
        return torch.stack([source, target]), self.weight[target, channel, slot], channel

    def __repr__(self) -> str:
        *batch, n, k, s = self.index.shape
        return f"SparseEdges({f'batch={batch}, ' if batch else ''}tokens={n}, edges={k}, pointers={s})"

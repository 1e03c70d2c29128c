"""How the tokens of a batch of text graphs stand in one sequence, and what may see what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Data

Mode = Literal["prefix", "causal", "full"]


@dataclass(frozen=True)
class TokenLayout:
    r"""A batch of :math:`B` text graphs as one sequence of :math:`T` tokens without padding.

    Visibility, always within one graph: in mode ``"prefix"`` token :math:`i` sees :math:`j` iff :math:`j` is in a
    context node, or both are in the target and :math:`j \le i`; in ``"causal"`` iff :math:`j \le i`; in ``"full"``
    always.

    Shapes:
        - **order** (T,) packed place -> stored place; the target's tokens come last in their graph
        - **graph_ptr** (B + 1,) the tokens of graph g are ``graph_ptr[g]:graph_ptr[g + 1]``
        - **node** (T,) node within its graph, −1 for a token of no node
        - **position** (T,) rotary position: restarts at 0 in every node
        - **is_target** (T,) bool
        - **num_nodes** (B,)
    """

    order: Tensor
    graph_ptr: Tensor
    node: Tensor
    position: Tensor
    is_target: Tensor
    num_nodes: Tensor
    mode: Mode = "prefix"

    @cached_property
    def most_nodes(self) -> int:
        """Nodes of the largest graph; read from the device once."""
        return int(self.num_nodes.max()) if self.num_nodes.numel() else 0

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"TokenLayout: 'mode' is {self.mode!r}, expected one of {get_args(Mode)}")

    @classmethod
    def from_data(cls, data: Data, mode: Mode = "prefix", *, answers: bool = True) -> TokenLayout:
        """The layout of a :class:`TextAttributedData` or of a PyG batch of them.

        Args:
            data: Needs ``num_tokens``; ``target`` is optional.
            mode: See the class.
            answers: ``False`` leaves out the target's tokens from the first supervised one on, so that what follows
                cannot depend on the answer in the data.

        Raises:
            ValueError: If tokens outside the target are supervised, or the fields do not fit each other.
        """
        if "num_tokens" not in data:
            raise ValueError("TokenLayout: the graph has no 'num_tokens'; tokenize it first (TokenizeText)")
        count = data.num_tokens
        if count.dtype != torch.long or count.shape != (data.num_nodes,) or bool((count < 0).any()):
            got = f"{count.dtype} of shape {tuple(count.shape)}"
            raise ValueError(
                f"TokenLayout: 'num_tokens' is {got}, expected {data.num_nodes} counts of 0 or more, int64"
            )
        total = int(count.sum())
        for key in ("input_ids", "labels"):
            if key in data and data[key].shape != (total,):
                shape = tuple(data[key].shape)
                raise ValueError(
                    f"TokenLayout: '{key}' is of shape {shape}, expected ({total},), the sum of 'num_tokens'"
                )
        device = count.device
        ptr = data.ptr if "ptr" in data else torch.tensor([0, data.num_nodes], device=device)
        num_nodes = ptr.diff()
        graph = torch.repeat_interleave(num_nodes)  # [N] graph of each node
        is_target = torch.zeros(count.numel(), dtype=torch.bool, device=device)
        if "target" in data:
            target = torch.as_tensor(data.target, device=device).view(-1)
            if target.is_floating_point() or bool(((target < 0) | (target >= count.numel())).any()):
                raise ValueError(f"TokenLayout: 'target' is {target.tolist()}, expected nodes in [0, {count.numel()})")
            is_target[target] = True
        node = torch.repeat_interleave(count)  # [T] in stored order, node of the batch
        start = count.cumsum(0) - count
        position = torch.arange(node.numel(), device=device) - start[node]
        keep = torch.ones_like(node, dtype=torch.bool)
        supervised = data.labels >= 0 if "labels" in data else ~keep
        if bool((supervised & ~is_target[node]).any()):
            where = int(node[supervised & ~is_target[node]][0])
            raise ValueError(f"TokenLayout: 'labels' supervises node {where}, which is not the target and sees itself")
        if not answers and bool(supervised.any()):
            first = torch.full_like(count, torch.iinfo(torch.long).max)
            first.scatter_reduce_(0, node[supervised], position[supervised], "amin")
            keep = position < first[node]
        # graphs in turn, context before target, otherwise the stored order
        order = (graph[node] * 2 + is_target[node]).argsort(stable=True)
        order = order[keep[order]]
        node, position = node[order], position[order]
        size = torch.bincount(graph[node], minlength=num_nodes.numel())
        graph_ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
        return cls(order, graph_ptr, node - ptr[graph[node]], position, is_target[node], num_nodes, mode)

    @property
    def num_tokens(self) -> int:
        return self.node.numel()

    @property
    def num_graphs(self) -> int:
        return self.num_nodes.numel()

    @property
    def graph(self) -> Tensor:
        """The graph of each token, (T,)."""
        return torch.repeat_interleave(self.graph_ptr.diff())

    @property
    def last(self) -> Tensor:
        """The packed place of each graph's last token, (B,)."""
        return self.graph_ptr[1:] - 1

    def to(self, device: torch.device | str) -> TokenLayout:
        names = ("order", "graph_ptr", "node", "position", "is_target", "num_nodes")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def visible(self, nodes: Tensor | None = None, window: int | None = None) -> Tensor:
        """Which token sees which, dense: for references, tests and figures only.

        Args:
            nodes: Which node sees which, (B, N, N) bool; a node always sees itself.
            window: Tokens of one node see each other only less than ``window`` places apart; in mode ``"causal"``
                the distance is the one in the sequence.

        Shapes:
            - **returns** (T, T) bool, row = the token that sees
        """
        place = torch.arange(self.num_tokens, device=self.node.device)
        later = place[:, None] < place
        same_graph = self.graph[:, None] == self.graph
        if self.mode == "causal":
            out = same_graph & ~later
        elif self.mode == "full":
            out = same_graph
        else:
            out = same_graph & (~self.is_target | (self.is_target[:, None] & ~later))
        if nodes is not None:
            out &= self.expand_pairs(nodes[:, None], fill=True)[0]
        if window is not None:
            at = place if self.mode == "causal" else self.position
            near = (at[:, None] - at).abs() < window
            out &= near if self.mode == "causal" else near | (self.node[:, None] != self.node)
        return out

    def expand_pairs(self, pairs: Tensor, fill: float = 0) -> Tensor:
        """Spreads values per node pair over token pairs; ``fill`` inside a node, for no node and between graphs.

        Shapes:
            - **pairs** (B, H, N, N), row = query's node
            - **returns** (H, T, T)
        """
        graph, node = self.graph, self.node.clamp(min=0)
        out = pairs[graph[:, None], :, node[:, None], node].permute(2, 0, 1)  # [H, T, T]
        one_node = (self.node[:, None] == self.node) | (self.node < 0) | (self.node < 0)[:, None]
        return out.masked_fill(one_node | (graph[:, None] != graph), fill)


def to_dense_pairs(x: Tensor, ptr: Tensor, fill: float = 0) -> Tensor:
    """Node-pair features of a batch, stored flat, as one padded tensor.

    Args:
        x: All graphs' pairs, one graph after the other, row-major over (from, to).
        ptr: Where each graph's nodes start.
        fill: Value of the padding.

    Shapes:
        - **x** (sum of N_g², \\*); **ptr** (B + 1,)
        - **returns** (B, N, N, \\*), N the largest N_g

    Raises:
        ValueError: If ``x`` does not hold one entry per pair.
    """
    size = ptr.diff()
    expected = int((size * size).sum())
    if x.size(0) != expected:
        raise ValueError(f"to_dense_pairs: 'x' has {x.size(0)} rows, expected {expected}, one per pair of nodes")
    n = int(size.max()) if size.numel() else 0
    if bool((size == n).all()):
        return x.view(size.numel(), n, n, *x.shape[1:])
    inside = torch.arange(n, device=x.device) < size[:, None]  # [B, N]
    out = x.new_full((size.numel(), n, n, *x.shape[1:]), fill)
    out[inside[:, :, None] & inside[:, None, :]] = x
    return out

"""Sparse edge referral: pointers of pointers."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.ops import mix, refer, sparsify, temper

History = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes what the new tokens add to a layer's two tables and returns the whole tables, with earlier tokens first."""

TemperatureKind = Literal["softplus", "exponential"]


def temperature(x: Tensor, kind: TemperatureKind = "softplus") -> Tensor:
    """Maps a projection to a positive temperature, zero to one."""
    return x.exp() if kind == "exponential" else F.softplus(x + math.log(math.e - 1))


def as_edges(edges: SparseEdges | Tensor, x: Tensor, k: int, s: int) -> SparseEdges:
    """Accepts a PyG ``edge_index`` in the place of edges; weights are at least as precise as the features."""
    if not isinstance(edges, SparseEdges):
        edges = SparseEdges.from_edge_index(edges, x.size(-2), k, s)
    return SparseEdges(edges.index, edges.weight.to(torch.promote_types(x.dtype, edges.weight.dtype)))


class SparseEdgeReferral(nn.Module):
    r"""Rewrites each token's edges by following them one step further (SER; GM-2, arXiv 2609.02881).

    From its features a token mixes its edges (and refresh edges, if there are any) into 2k new ones, the two legs of a
    walk: :math:`A' = \mathrm{Sparsify}_{s_1}(A_1 A_2)` per channel.

    Args:
        in_channels: Size of the features.
        num_edges: Edges per token, k.
        budgets: Pointers per edge of the result, the first and the second leg, (s1, s2, s3).
        num_refresh: Number of refresh edges per token.
        temperature_kind: Which function keeps temperatures positive.

    Example:
        >>> layer = SparseEdgeReferral(16, num_edges=4)
        >>> edges = layer(x, data.edge_index)        # a PyG graph, batched or not
        >>> edges = layer(x, edges)

    Shapes:
        - **x** (\*, n, in_channels); **edges** (\*, n, k, any), or an ``edge_index`` (2, E)
        - **refresh** groups of edges (\*, n, any, any)
        - **returns** (\*, n, k, s1)
    """

    def __init__(
        self,
        in_channels: int,
        num_edges: int,
        budgets: tuple[int, int, int] = (4, 4, 4),
        num_refresh: int = 0,
        temperature_kind: TemperatureKind = "softplus",
    ) -> None:
        super().__init__()
        self.num_edges, self.num_refresh, self.budgets = num_edges, num_refresh, budgets
        self.temperature_kind: TemperatureKind = temperature_kind
        mixing = 2 * num_edges * (num_edges + num_refresh)
        self.split = [num_edges, 2 * num_edges, mixing]
        self.proj = nn.Linear(in_channels, sum(self.split), bias=False)

    def forward(
        self,
        x: Tensor,
        edges: SparseEdges | Tensor,
        refresh: Sequence[SparseEdges] = (),
        history: History | None = None,
    ) -> SparseEdges:
        k, (s1, s2, s3) = self.num_edges, self.budgets
        edges = as_edges(edges, x, k, s1)
        heat_in, heat_out, logits = self.proj(x).to(edges.weight.dtype).split(self.split, -1)
        heat_in, heat_out = temperature(heat_in, self.temperature_kind), temperature(heat_out, self.temperature_kind)
        sharp = temper(edges.weight, heat_in)
        groups = [(edges.index, sharp), *((extra.index, extra.weight) for extra in refresh)]
        logits = logits.unflatten(-1, (k + self.num_refresh, 2 * k))
        index, weight = mix(groups, logits, max(s2, s3), heat_out)  # [*, n, 2k, max(s2, s3)]
        first, second = ((index[..., part, :], weight[..., part, :]) for part in (slice(k), slice(k, None)))
        if s2 != s3:
            first, second = sparsify(*first, s2), sparsify(*second, s3)
        if history is not None:
            second = history(*second)
        return SparseEdges(*refer(*first, *second, s1))

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.proj.in_features}, num_edges={self.num_edges}, budgets={self.budgets}, "
            f"num_refresh={self.num_refresh})"
        )

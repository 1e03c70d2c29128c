"""A sparse layer of the Graph Machine."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.sparse_edge_attention import SparseEdgeAttention
from pyg_textgraph.nn.sparse_edge_referral import History, SparseEdgeReferral, TemperatureKind, as_edges


class FeedForward(nn.Module):
    """SwiGLU, with the names of a Qwen3 ``mlp``."""

    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(in_channels, hidden_channels, bias=False)
        self.up_proj = nn.Linear(in_channels, hidden_channels, bias=False)
        self.down_proj = nn.Linear(hidden_channels, in_channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class GraphMachineLayer(nn.Module):
    r"""Referrals, edge attention and a feed-forward network (GM-2, arXiv 2609.02881).

    Referrals and attention read the same normalized features; features change only after attention.

    Args:
        in_channels: Size of the features.
        hidden_channels: Size of the feed-forward network.
        num_heads: Query heads.
        num_groups: Key and value heads.
        head_dim: Size of a head.
        num_edges: Edges per token, k.
        budgets: Pointers of stored edges, of both legs of a referral, and of attention, (s1, s2, s3, s4).
        num_refresh: For each referral, how many edges it takes of each refresh source; its length is the number of
            referrals.
        realign: Whether attention writes its pointers back; needs s1 = s4.
        temperature_kind: Which function keeps temperatures positive.
        eps: Of the norms.

    Example:
        >>> first, second = (GraphMachineLayer(16, 32, 2, 1, 8, num_edges=4) for _ in range(2))
        >>> x, edges = first(x, data.edge_index)     # a PyG graph, batched or not
        >>> x, edges = second(x, edges)

    Shapes:
        - **x** (\*, n, in_channels); **edges** (\*, n, k, any), or an ``edge_index`` (2, E)
        - **refresh** one (\*, n, any, any) per source, or None where no referral takes it
        - **returns** features like x, and edges (\*, n, k, any)

    Raises:
        ValueError: If realignment is asked for with s1 ≠ s4.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_heads: int,
        num_groups: int,
        head_dim: int,
        num_edges: int,
        budgets: tuple[int, int, int, int] = (4, 4, 4, 4),
        num_refresh: Sequence[Sequence[int]] = ((),),
        realign: bool = True,
        temperature_kind: TemperatureKind = "softplus",
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        s1, s2, s3, s4 = budgets
        if realign and s1 != s4:
            raise ValueError(f"GraphMachineLayer: realignment needs s1 = s4, got budgets {budgets}; pass realign=False")
        self.num_edges, self.num_pointers = num_edges, s1
        self.num_refresh = [tuple(counts) for counts in num_refresh]
        self.num_referrals = len(self.num_refresh)
        self.input_layernorm = nn.RMSNorm(in_channels, eps=eps)
        self.referrals = nn.ModuleList(
            SparseEdgeReferral(in_channels, num_edges, (s1, s2, s3), sum(counts), temperature_kind)
            for counts in self.num_refresh
        )
        self.attention = SparseEdgeAttention(
            in_channels, num_heads, num_groups, head_dim, num_edges, s4, realign, temperature_kind, eps
        )
        self.post_attention_layernorm = nn.RMSNorm(in_channels, eps=eps)
        self.mlp = FeedForward(in_channels, hidden_channels)

    def forward(
        self,
        x: Tensor,
        edges: SparseEdges | Tensor,
        refresh: Sequence[SparseEdges | None] = (),
        histories: Sequence[History] | None = None,
    ) -> tuple[Tensor, SparseEdges]:
        state = as_edges(edges, x, self.num_edges, self.num_pointers)
        remember = [*histories] if histories else [None] * (self.num_referrals + 1)  # one each, attention last
        normed = self.input_layernorm(x)
        for referral, counts, history in zip(self.referrals, self.num_refresh, remember, strict=False):
            groups = [extra for extra, count in zip(refresh, counts, strict=False) if count and extra is not None]
            state = referral(normed, state, groups, history)
        attended, state = self.attention(normed, state, remember[-1])
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), state

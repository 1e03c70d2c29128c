"""Sparse edge attention: attend where the edges point."""

import torch
from torch import Tensor, nn

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.sparse_edge_referral import History, TemperatureKind, as_edges, temperature
from pyg_textgraph.ops import edge_attention, mix, sparsify, temper


def heads_across_groups(num_heads: int, num_groups: int) -> list[int]:
    """All heads in (head within its group, group) order: the first head of every group, then the second, …"""
    per_group = num_heads // num_groups
    return [group * per_group + member for member in range(per_group) for group in range(num_groups)]


class SparseEdgeAttention(nn.Module):
    r"""Attention of each token to the few tokens its edges point to (SEA; GM-2, arXiv 2609.02881).

    The k edges are mixed into one pointer list per key group; scores are
    :math:`\tau_n q k/\sqrt d + \tau_e \log w`, without positional encoding. With `realign` the attention writes what
    it attended to back into the edges.

    Args:
        in_channels: Size of the features.
        num_heads: Query heads, h.
        num_groups: Key and value heads, g.
        head_dim: Size of a head.
        num_edges: Edges per token, k.
        num_pointers: Pointers per group, s4 (and per edge, with `realign`).
        realign: Whether attention replaces the last h edges (all k of them if k ≤ h).
        temperature_kind: Which function keeps temperatures positive.
        eps: Of the query and key norms.

    Example:
        >>> layer = SparseEdgeAttention(16, num_heads=2, num_groups=1, head_dim=8, num_edges=4)
        >>> x, edges = layer(x, data.edge_index)     # a PyG graph, batched or not

    Shapes:
        - **x** (\*, n, in_channels); **edges** (\*, n, k, any), or an ``edge_index`` (2, E)
        - **returns** features like x, and edges (\*, n, k, any)
    """

    def __init__(
        self,
        in_channels: int,
        num_heads: int,
        num_groups: int,
        head_dim: int,
        num_edges: int,
        num_pointers: int = 4,
        realign: bool = True,
        temperature_kind: TemperatureKind = "softplus",
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if num_heads % num_groups:
            raise ValueError(f"SparseEdgeAttention: {num_heads} heads are not a multiple of {num_groups} groups")
        self.num_heads, self.num_groups, self.head_dim = num_heads, num_groups, head_dim
        self.num_edges, self.num_pointers, self.realign = num_edges, num_pointers, realign
        self.temperature_kind: TemperatureKind = temperature_kind
        inner, keys = num_heads * head_dim, num_groups * head_dim
        self.split = [num_edges, num_groups, num_heads, num_groups * num_edges, inner, keys, keys]
        self.in_proj = nn.Linear(in_channels, sum(self.split), bias=False)
        self.q_norm = nn.RMSNorm(head_dim, eps=eps)
        self.k_norm = nn.RMSNorm(head_dim, eps=eps)
        self.o_proj = nn.Linear(inner, in_channels, bias=False)

    def forward(
        self, x: Tensor, edges: SparseEdges | Tensor, history: History | None = None
    ) -> tuple[Tensor, SparseEdges]:
        edges = as_edges(edges, x, self.num_edges, self.num_pointers)
        *heats, logits, q, k, v = self.in_proj(x).split(self.split, -1)
        heat_in, heat_edge, heat_node = (
            temperature(heat.to(edges.weight.dtype), self.temperature_kind) for heat in heats
        )
        q = self.q_norm(q.unflatten(-1, (self.num_heads, self.head_dim)))
        k = self.k_norm(k.unflatten(-1, (self.num_groups, self.head_dim)))
        v = v.unflatten(-1, (self.num_groups, self.head_dim))
        if history is not None:
            k, v = history(k, v)
        tempered = SparseEdges(edges.index, temper(edges.weight, heat_in))
        logits = logits.to(edges.weight.dtype).unflatten(-1, (self.num_edges, self.num_groups))
        index, weight = mix([(tempered.index, tempered.weight)], logits, self.num_pointers)  # [*, n, g, s4]
        out, attention = edge_attention(q, k, v, index, weight, heat_node, heat_edge)
        attended = SparseEdges(index.repeat_interleave(self.num_heads // self.num_groups, -2), attention)
        return self.o_proj(out.flatten(-2)), self._realigned(tempered, attended) if self.realign else edges

    def _realigned(self, tempered: SparseEdges, attended: SparseEdges) -> SparseEdges:
        """The attention of each head (\\*, n, h, s4) becomes an edge."""
        kept = self.num_edges - self.num_heads
        if kept > 0:
            head = SparseEdges(tempered.index[..., :kept, :], tempered.weight[..., :kept, :])
            if head.num_pointers > self.num_pointers:
                head = SparseEdges(*sparsify(head.index, head.weight, self.num_pointers))
            return SparseEdges.cat([head.pad(self.num_pointers), attended])
        heads = torch.arange(self.num_heads, device=attended.index.device)  # a list would wait for the GPU
        chosen = heads.view(self.num_groups, -1).T.flatten()[: self.num_edges]  # as in `heads_across_groups`
        return SparseEdges(attended.index.index_select(-2, chosen), attended.weight.index_select(-2, chosen))

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_proj.in_features}, num_heads={self.num_heads}, "
            f"num_groups={self.num_groups}, num_edges={self.num_edges}, num_pointers={self.num_pointers}, "
            f"realign={self.realign})"
        )

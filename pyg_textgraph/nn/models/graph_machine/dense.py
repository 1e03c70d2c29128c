"""The dense layers of a Graph Machine: Qwen3's, which can also point at what they attend to."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.graph_machine_layer import FeedForward
from pyg_textgraph.nn.models.graph_machine.config import GraphMachineConfig
from pyg_textgraph.nn.sparse_edge_attention import heads_across_groups
from pyg_textgraph.nn.sparse_edge_referral import History
from pyg_textgraph.ops.refer import flat_rows

Rotation = tuple[Tensor, Tensor]
BLOCK = 1 << 22  # scores held at a time


def rotary(position: Tensor, head_dim: int, base: float, dtype: torch.dtype) -> Rotation:
    """Cosine and sine (\\*, n, 1, head_dim) of rotary position embedding."""
    frequency = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32, device=position.device) / head_dim)
    angle = (position.unsqueeze(-1) * frequency).repeat(1, 1, 2).unsqueeze(-2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turns the pairs (i, i + d/2) of every head."""
    low, high = x.chunk(2, -1)
    return x * rotation[0] + torch.cat([-high, low], -1) * rotation[1]


class DenseAttention(nn.Module):
    """Causal attention with the names of Qwen3's ``self_attn``.

    Shapes:
        - **x** (B, n, d); **visible** (B, 1, n, N) or None for plain causal; **floor** (B,) or None
        - **returns** features (B, n, d) and, with `dense_refresh`, that many edges (B, n, r, s1)
    """

    def __init__(self, config: GraphMachineConfig) -> None:
        super().__init__()
        d, dh = config.hidden_size, config.head_dim
        self.head_dim, self.num_pointers = dh, config.budgets[0]
        self.q_proj = nn.Linear(d, config.num_attention_heads * dh, bias=False)
        self.k_proj = nn.Linear(d, config.num_key_value_heads * dh, bias=False)
        self.v_proj = nn.Linear(d, config.num_key_value_heads * dh, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * dh, d, bias=False)
        self.q_norm = nn.RMSNorm(dh, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(dh, eps=config.rms_norm_eps)
        across = heads_across_groups(config.num_attention_heads, config.num_key_value_heads)
        self.refresh_heads = across[len(across) - config.dense_refresh :]
        self.per_group = config.num_attention_heads // config.num_key_value_heads

    def forward(
        self, x: Tensor, rotation: Rotation, visible: Tensor | None, floor: Tensor | None, history: History | None
    ) -> tuple[Tensor, SparseEdges | None]:
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q), rotation), rotate(self.k_norm(k), rotation)
        if history is not None:
            k, v = history(k, v)
        query, key, value = (t.transpose(1, 2) for t in (q, k, v))
        causal = visible is None and q.size(1) > 1
        out = F.scaled_dot_product_attention(query, key, value, visible, is_causal=causal, enable_gqa=True)
        out = self.o_proj(out.transpose(1, 2).flatten(-2))
        if not self.refresh_heads:
            return out, None
        groups = [head // self.per_group for head in self.refresh_heads]
        return out, strongest_keys(q[:, :, self.refresh_heads], k[:, :, groups], self.num_pointers, floor)


def strongest_keys(q: Tensor, k: Tensor, s: int, floor: Tensor | None = None) -> SparseEdges:
    """The s best causal scores of each head, as edges; where there are fewer, slots stay empty.

    The search holds a block of queries at a time and has no gradient; the scores it finds do.

    Shapes:
        - **q** (B, n, r, d), the last n of N tokens; **k** (B, N, r, d); **floor** (B,) first visible token, or None
        - **returns** edges (B, n, r, s)
    """
    batch, n, heads, dim = q.shape
    size = k.size(1)
    key = torch.arange(size, device=q.device)
    index = torch.zeros(batch, n, heads, s, dtype=torch.int32, device=q.device)
    step = max(1, BLOCK // max(1, batch * heads * size))
    with torch.no_grad():
        for begin in range(0, n, step):
            rows = slice(begin, min(begin + step, n))
            end = size - n + rows.stop  # keys behind the last query of the block are never seen
            score = q[:, rows].transpose(1, 2) @ k[:, :end].permute(0, 2, 3, 1)  # [B, r, rows, end]
            token = torch.arange(size - n + rows.start, end, device=q.device).unsqueeze(-1)
            score = score.masked_fill_(key[:end] > token, -torch.inf)
            if floor is not None:
                score = score.masked_fill_(key[:end] < floor.view(-1, 1, 1, 1), -torch.inf)
            best = score.topk(min(s, end), dim=-1)
            found = best.indices.masked_fill_(best.values == -torch.inf, -1)
            index[:, rows] = F.pad(found, (0, s - found.size(-1)), value=-1).transpose(1, 2).int()
    empty = index < 0
    index = index.masked_fill(empty, 0)
    near = k.reshape(-1, dim)[flat_rows(index, size)]  # [B, n, r, s, d]
    score = torch.einsum("bnrd,bnrsd->bnrs", q, near).float() * dim**-0.5
    weight = score.masked_fill(empty, torch.finfo(score.dtype).min).softmax(-1).masked_fill(empty, 0)
    return SparseEdges(index, weight)


class DenseLayer(nn.Module):
    """A Qwen3 decoder layer."""

    def __init__(self, config: GraphMachineConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = DenseAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = FeedForward(config.hidden_size, config.intermediate_size)

    def forward(
        self, x: Tensor, rotation: Rotation, visible: Tensor | None, floor: Tensor | None, history: History | None
    ) -> tuple[Tensor, SparseEdges | None]:
        attended, refresh = self.self_attn(self.input_layernorm(x), rotation, visible, floor, history)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), refresh

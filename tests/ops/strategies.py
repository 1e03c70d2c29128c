"""Random layouts and inputs for tests of graph attention, its backends and the layers on top of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from hypothesis import strategies as st
from torch import Tensor

from pyg_textgraph.data.layout import Mode, TokenLayout


def make_layout(
    counts: Sequence[Sequence[int]], mode: Mode = "prefix", targets: Sequence[int | None] | None = None, loose: int = 0
) -> TokenLayout:
    """A layout from the tokens per node of every graph; ``loose`` tokens of no node stand before each of its nodes."""
    node: list[int] = []
    position: list[int] = []
    is_target: list[bool] = []
    sizes = [0]
    for graph, count in enumerate(counts):
        target = None if targets is None else targets[graph]
        for u in sorted(range(len(count)), key=lambda u: u == target):  # the target last
            node += [-1] * loose + [u] * count[u]
            position += [*range(loose), *range(count[u])]
            is_target += [False] * loose + [u == target] * count[u]
        sizes.append(len(node) - sum(sizes))
    return TokenLayout(
        order=torch.arange(len(node)),
        graph_ptr=torch.tensor(list(accumulate(sizes))),
        node=torch.tensor(node, dtype=torch.long),
        position=torch.tensor(position, dtype=torch.long),
        is_target=torch.tensor(is_target, dtype=torch.bool),
        num_nodes=torch.tensor([len(count) for count in counts]),
        mode=mode,
    )


@st.composite
def layouts(
    draw: st.DrawFn,
    max_graphs: int = 3,
    max_nodes: int = 6,
    max_tokens: int = 5,
    modes: Sequence[Mode] = ("prefix", "causal", "full"),
) -> TokenLayout:
    """Graphs with and without a target, nodes without tokens, and in causal mode tokens of no node."""
    mode = draw(st.sampled_from(modes))
    node_counts = st.lists(st.integers(0, max_tokens), min_size=1, max_size=max_nodes)
    counts = draw(st.lists(node_counts, min_size=1, max_size=max_graphs))
    targets = [draw(st.none() | st.integers(0, len(count) - 1)) for count in counts] if mode == "prefix" else None
    return make_layout(counts, mode, targets, loose=draw(st.integers(0, 2)) if mode == "causal" else 0)


def random_inputs(
    layout: TokenLayout,
    heads: int = 4,
    kv_heads: int = 2,
    channels: int = 8,
    dtype: torch.dtype = torch.float64,
    pairs: Tensor | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and a bias, (H, P) with ``pairs`` and (B, H, N, N) without; all require gradients."""
    rng = torch.Generator().manual_seed(seed)
    nodes = int(layout.num_nodes.max())
    shapes = [(layout.num_tokens, h, channels) for h in (heads, kv_heads, kv_heads)]
    shapes.append((layout.num_graphs, heads, nodes, nodes) if pairs is None else (heads, pairs.size(1)))
    q, k, v, bias = (torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), bias.requires_grad_()


def random_visible(layout: TokenLayout, density: float = 0.4, seed: int = 0) -> Tensor:
    """Which node sees which, (B, N, N), the diagonal and rows without any entry included."""
    nodes = int(layout.num_nodes.max())
    visible = torch.rand(layout.num_graphs, nodes, nodes, generator=torch.Generator().manual_seed(seed)) < density
    inside = torch.arange(nodes) < layout.num_nodes[:, None]
    return visible & inside[:, :, None] & inside[:, None]


def list_pairs(layout: TokenLayout, visible: Tensor) -> Tensor:
    """The pairs of ``visible`` (B, N, N) as (2, P), nodes counted over the batch."""
    graph, query, key = visible.nonzero(as_tuple=True)
    start = layout.num_nodes.cumsum(0) - layout.num_nodes
    return torch.stack([query, key]) + start[graph]


def with_grads(function: Callable[..., Tensor], *args: object, **kwargs: object) -> list[Tensor]:
    """The output and the gradients of a random but fixed projection of it, to every tensor that requires one."""
    wanted = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
    out = function(*args, **kwargs)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out)
    grads = torch.autograd.grad(out, wanted, weight, allow_unused=True, materialize_grads=True)
    return [out.detach(), *grads]


def eager_attention(q: Tensor, k: Tensor, v: Tensor, layout: TokenLayout, bias: Tensor) -> Tensor:
    """Attention as Hugging Face's eager functions do it in low precision."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    mask = layout.expand_pairs(bias).masked_fill(~layout.visible(), torch.finfo(q.dtype).min).to(q.dtype)
    score = q @ k.mT * q.size(-1) ** -0.5 + mask
    return (score.softmax(-1, dtype=torch.float32).to(q.dtype) @ v).transpose(0, 1)

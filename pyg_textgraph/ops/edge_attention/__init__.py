"""Attend along weighted pointers."""

from types import ModuleType
from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.backend import implementation
from pyg_textgraph.ops.edge_attention.blocked import edge_attention_blocked
from pyg_textgraph.ops.edge_attention.reference import edge_attention_reference
from pyg_textgraph.ops.sparsify import drop_lightest

__all__ = ["edge_attention"]

_PORTABLE = {"reference": edge_attention_reference, "blocked": edge_attention_blocked}


def edge_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    weight: Tensor,
    node_temperature: Tensor,
    edge_temperature: Tensor,
    *,
    backend: Literal["auto", "reference", "blocked", "triton"] = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Attention of every token to the s tokens its group's pointers name (GM-2, arXiv 2609.02881).

    Scores are ``τ_node q·k/√d + τ_edge log w``. An empty slot (weight below 1e-20) gets no attention; a
    token without any pointer gets a zero output.

    Args:
        q: (\*, n, h, d).
        k: (\*, N, g, d), with h a multiple of g; heads ``i·h/g … (i+1)·h/g − 1`` share group i.
        v: (\*, N, g, d).
        index: (\*, n, g, s), which of the N tokens.
        weight: (\*, n, g, s), non-negative.
        node_temperature: (\*, n, h).
        edge_temperature: (\*, n, g).
        backend: ``"reference"`` (no batch dimensions), ``"blocked"`` (any device), ``"triton"`` (NVIDIA GPUs, needs the
            package triton) or ``"auto"``: triton where it can do it, else blocked.

    Shapes:
        - **returns** output (\*, n, h, d) and attention (\*, n, h, s), both differentiable

    Raises:
        ValueError: If the heads are not a multiple of the groups, the lists are empty, or the shapes do not match.
    """
    if q.size(-2) % k.size(-2) or index.size(-2) != k.size(-2):
        raise ValueError(
            f"edge_attention: {q.size(-2)} heads, {k.size(-2)} key groups and {index.size(-2)} pointer groups "
            "do not match"
        )
    (*batch, n, h, d), (*_, size, g, _), s = q.shape, k.shape, index.size(-1)
    expected = {
        "k": (k, (*batch, size, g, d)), "v": (v, (*batch, size, g, d)), "index": (index, (*batch, n, g, s)),
        "weight": (weight, (*batch, n, g, s)), "node_temperature": (node_temperature, (*batch, n, h)),
        "edge_temperature": (edge_temperature, (*batch, n, g)),
    }  # fmt: skip
    for name, (x, shape) in expected.items():
        if tuple(x.shape) != shape:
            raise ValueError(f"edge_attention: '{name}' is {tuple(x.shape)}, expected {shape}")
    if s == 0:
        raise ValueError(
            "edge_attention: 'index' has lists of 0 pointers, expected at least 1; an empty slot has weight 0"
        )
    args = (q, k, v, index, drop_lightest(weight), node_temperature, edge_temperature)
    return implementation("edge_attention", backend, _PORTABLE, _kernels, args)(*args)


def _kernels() -> ModuleType:
    from pyg_textgraph.ops.edge_attention import triton

    return triton

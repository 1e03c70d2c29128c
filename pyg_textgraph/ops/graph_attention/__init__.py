"""Softmax attention over packed text graphs with an additive bias per pair of nodes."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.backend import implementation
from pyg_textgraph.ops.graph_attention.blocked import graph_attention_blocked
from pyg_textgraph.ops.graph_attention.reference import graph_attention_reference

Backend = Literal["auto", "reference", "blocked", "triton"]
_PORTABLE = {"reference": graph_attention_reference, "blocked": graph_attention_blocked}

__all__ = ["Backend", "graph_attention", "graph_attention_blocked", "graph_attention_reference"]


def graph_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: TokenLayout,
    bias: Tensor | None = None,
    *,
    pairs: Tensor | None = None,
    visible: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
    backend: Backend = "auto",
) -> Tensor:
    r"""Attention of tokens that belong to nodes, :math:`\mathrm{softmax}(qk^\top\cdot\mathrm{scale} + b_{uv})\,v`.

    Two tokens of one node, and tokens of no node, see each other with bias 0 wherever the layout's mode allows.

    Args:
        q: Queries in packed order.
        k: Keys; fewer heads than **q** are shared by consecutive query heads.
        v: Values.
        layout: Which token is whose, and the mode (prefix, causal or full).
        bias: One number per head and pair of nodes, row = query's node; gets a gradient.
        pairs: Lists the pairs of different nodes (query's node, key's node; nodes counted over the batch) that see each
            other; **bias** then holds one column per pair. Every pair at most once.
        visible: Dense alternative to **pairs**: which node sees which.
        scale: Factor on the products, :math:`1/\sqrt{D}` by default.
        softcap: Replaces the scaled product :math:`s` by :math:`c\tanh(s/c)`, before the bias.
        window: Tokens of one node see each other only less than this many places apart (in causal mode: any tokens,
            by place in the sequence).
        backend: ``"reference"`` (dense), ``"blocked"`` (any device, memory linear in T), ``"triton"`` (NVIDIA GPUs,
            needs the package triton) or ``"auto"``: triton where it can do it, else blocked.

    Shapes:
        - **q** (T, H, D); **k**, **v** (T, H_kv, D), H a multiple of H_kv
        - **bias** (B, H, N, N), or (H, P) with **pairs** (2, P); **visible** (B, N, N) bool
        - **returns** (T, H, D); a row that sees nothing is 0

    Raises:
        ValueError: If shapes, types or **pairs** do not fit, both **pairs** and **visible** are given, or the backend
            cannot do it.
        ModuleNotFoundError: If backend ``"triton"`` is asked for and not installed.
    """
    if torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64:
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))  # as torch's own attention does
    _check(q, k, v, layout, bias, pairs, visible, window)
    args = (q, k, v, layout, bias)
    attention = implementation("graph_attention", backend, _PORTABLE, _kernels, args)
    return attention(*args, pairs=pairs, visible=visible, scale=scale, softcap=softcap, window=window)


def _kernels() -> ModuleType:
    from pyg_textgraph.ops.graph_attention import triton

    return triton


def _check(
    q: Tensor, k: Tensor, v: Tensor, layout: TokenLayout, bias: Tensor | None, pairs: Tensor | None,
    visible: Tensor | None, window: int | None,
) -> None:  # fmt: skip
    def fail(name: str, got: object, expected: object) -> None:
        raise ValueError(f"graph_attention: '{name}' is {got}, expected {expected}")

    if q.dim() != 3 or q.size(0) != layout.num_tokens:
        fail("q", tuple(q.shape), f"(T, H, D) with T = {layout.num_tokens} as in the layout")
    for name, x in (("k", k), ("v", v)):
        if x.dim() != 3 or x.size(0) != q.size(0) or x.size(2) != q.size(2) or q.size(1) % max(x.size(1), 1):
            fail(name, tuple(x.shape), f"(T, H_kv, D) = ({q.size(0)}, a divisor of {q.size(1)}, {q.size(2)})")
        if x.dtype != q.dtype:
            fail(name, x.dtype, f"{q.dtype} as q")
    if k.shape != v.shape:
        fail("v", tuple(v.shape), f"{tuple(k.shape)} as k")
    if pairs is not None and visible is not None:
        raise ValueError("graph_attention: give 'pairs' or 'visible', not both")
    graphs, nodes = layout.num_graphs, layout.most_nodes if pairs is None else 0
    if pairs is not None:
        if pairs.dim() != 2 or pairs.size(0) != 2 or pairs.dtype != torch.long:
            fail("pairs", f"{pairs.dtype} of shape {tuple(pairs.shape)}", "int64 (2, P)")
        expected: tuple[int, ...] = (q.size(1), pairs.size(1))
    else:
        expected = (graphs, q.size(1), nodes, nodes)
    if bias is not None and tuple(bias.shape) != expected:
        fail("bias", tuple(bias.shape), expected)
    if visible is not None and (visible.dtype != torch.bool or tuple(visible.shape) != (graphs, nodes, nodes)):
        fail("visible", f"{visible.dtype} of shape {tuple(visible.shape)}", f"bool ({graphs}, {nodes}, {nodes})")
    if window is not None and window < 1:
        fail("window", window, "at least 1, so that a token sees itself")

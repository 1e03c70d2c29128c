"""Which kernel runs on what: arguments, grid and block sizes, without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from pyg_textgraph.ops.graph_attention.triton_backward import key_kernel, node_kernel, query_kernel
from pyg_textgraph.ops.graph_attention.triton_forward import forward_kernel
from pyg_textgraph.ops.graph_attention.triton_plan import TilePlan
from pyg_textgraph.ops.launch import Blocks, Launch

SMALLEST = 16  # side of a product on tensor cores


@dataclass(frozen=True)
class Options:
    """What is the same for all kernels of one call."""

    scale: float
    softcap: float | None
    window: int | None


def blocks_of(kernel: str, dtype: torch.dtype, channels: int, options: Options, short: bool = False) -> Blocks:
    """Block sizes that fit registers and shared memory from sm_80 on, as ``tools/kernel_resources.py`` checks.

    ``short``: a tile holds so many nodes that summing dB over them takes registers itself.
    """
    wide = (channels > 64) + (channels > 128)  # 0, 1, 2
    hard = options.softcap is not None or options.window is not None
    if dtype == torch.float32:
        return Blocks(16, 16) if channels > 128 else Blocks(32, 32, 8)
    return {
        "forward": (Blocks(128, 64, 8), Blocks(128, 64, 8), Blocks(64, 32, 8)),
        "query": (
            Blocks(32, 32) if hard or short else Blocks(64, 64),
            Blocks(32, 32) if short else Blocks(64, 64, 8),
            Blocks(32, 32),
        ),
        "key": (Blocks(32, 32) if hard else Blocks(32, 64, 8), Blocks(32, 64, 8), Blocks(32, 32, 8)),
    }[kernel][wide]


def precision_of(dtype: torch.dtype) -> str:
    """How float32 is multiplied: as torch is told to for float32 inputs; for others it only holds sums of dB."""
    if dtype != torch.float32:
        return "tf32"
    told: str = getattr(torch.backends.cuda.matmul, "fp32_precision", "none")  # torch forbids to ask in both ways
    if told in ("ieee", "tf32"):
        return told
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def splits_query(channels: int) -> bool:
    """Whether dQ and dB together would not fit the registers and take a kernel each."""
    return channels > 64


def forward_launch(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, lse: Tensor,
    plan: TilePlan, options: Options,
) -> Launch:  # fmt: skip
    """Fills **out** (T, H, D) and **lse** (H, T)."""
    blocks = blocks_of("forward", q.dtype, q.size(2), options)
    args = _common(q, k, v, bias, plan, options) | {"out": out, "lse": lse, "tiles": plan.tiles(blocks.rows)}
    args |= {"ROWS": blocks.rows, "KEYS": blocks.keys}
    return Launch(forward_kernel, (len(args["tiles"]), q.size(1)), args, blocks)


def backward_launches(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, lse: Tensor,
    grad: Tensor, dq: Tensor, dk: Tensor, dv: Tensor, dbias: Tensor | None, plan: TilePlan, options: Options,
) -> list[Launch]:  # fmt: skip
    """Fill **dq**, **dk**, **dv** and **dbias** (B, H, N, N); the order matters."""
    heads, channels = q.shape[1:]
    common = _common(q, k, v, bias, plan, options) | {"lse": lse, "grad": grad, "delta": torch.empty_like(lse)}

    blocks = blocks_of("query", q.dtype, channels, options)
    if dbias is not None and plan.segments(blocks.rows, dbias.size(3)).in_tile > SMALLEST:
        blocks = blocks_of("query", q.dtype, channels, options, short=True)
    tiles = plan.tiles(blocks.rows)
    query = common | {"tiles": tiles, "out": out, "dq": dq, "ROWS": blocks.rows}
    no_segments = dict.fromkeys(("segment", "segment_ptr", "pair_ptr", "partial")) | {"pairs": 0, "RUNS": SMALLEST}
    grid = (len(tiles), heads)
    if dbias is None:
        launches = [Launch(query_kernel, grid, query | no_segments, blocks)]
    else:
        segments = plan.segments(blocks.rows, dbias.size(3))
        partial = lse.new_zeros(heads, segments.num_pairs)  # hidden pairs of tiles are never visited
        pairs: dict[str, Any] = {"segment_ptr": segments.ptr, "pair_ptr": segments.pair_ptr, "partial": partial}
        pairs["pairs"] = segments.num_pairs
        runs = max(SMALLEST, triton.next_power_of_2(segments.in_tile))
        with_bias = query | pairs | {"segment": segments.of_token, "RUNS": runs}
        if splits_query(channels):
            launches = [Launch(query_kernel, grid, query | no_segments, blocks)]
            launches.append(Launch(query_kernel, grid, with_bias | {"dq": None}, blocks))
        else:
            launches = [Launch(query_kernel, grid, with_bias, blocks)]
        nodes = {"by_node": segments.by_node, "node_ptr": segments.node_ptr, "dbias": dbias, "nodes": dbias.size(3)}
        nodes |= {"most": segments.in_node, "H": heads, "KEYS": 128}
        grid_of_nodes = (dbias.size(0) * dbias.size(3), triton.cdiv(dbias.size(3), 128), heads)
        launches.append(Launch(node_kernel, grid_of_nodes, pairs | nodes, Blocks(1, 128)))

    blocks = blocks_of("key", q.dtype, channels, options)
    tiles = plan.tiles(blocks.keys)
    key = common | {"tiles": tiles, "dk": dk, "dv": dv, "ROWS": blocks.rows, "KEYS": blocks.keys}
    return [*launches, Launch(key_kernel, (len(tiles), k.size(1)), key, blocks)]


def _common(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, plan: TilePlan, options: Options) -> dict[str, Any]:
    """Arguments of all kernels that go over tiles."""
    return {
        "q": q, "k": k, "v": v, "bias": bias,
        "node": plan.node, "at": plan.at, "graph_ptr": plan.graph_ptr, "limit": plan.limit,
        "tokens": q.size(0), "nodes": 0 if bias is None else bias.size(3),
        "scale": options.scale, "softcap": options.softcap, "window": options.window,
        "SEQUENCE": plan.sequence, "PRECISION": precision_of(q.dtype),
        "H_BIAS": 1 if bias is None else bias.size(1), "H": q.size(1), "H_KV": k.size(1), "D": q.size(2),
        "BLOCK_D": max(SMALLEST, triton.next_power_of_2(q.size(2))),
    }  # fmt: skip

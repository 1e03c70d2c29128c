"""Which kernels run on what where pairs of nodes are listed."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from pyg_textgraph.ops.graph_attention.triton_launch import SMALLEST, Options, precision_of
from pyg_textgraph.ops.graph_attention.triton_listed import (
    listed_forward_kernel,
    listed_key_kernel,
    listed_query_kernel,
    pair_kernel,
)
from pyg_textgraph.ops.graph_attention.triton_lists import ListPlan
from pyg_textgraph.ops.graph_attention.triton_plan import TilePlan
from pyg_textgraph.ops.launch import Blocks, Launch


def listed_blocks(kernel: str, dtype: torch.dtype, channels: int) -> Blocks:
    """The largest tile of one node's tokens (times heads, for queries), and how much of its list is read at a time."""
    wide = (channels > 64) + (channels > 128)  # 0, 1, 2
    if dtype == torch.float32:
        return Blocks(16, 16) if channels > 128 else Blocks(32, 32, 8)
    return {
        "forward": (Blocks(64, 64), Blocks(64, 32), Blocks(64, 32, 8)),
        "query": (Blocks(64, 32), Blocks(64, 32, 8), Blocks(32, 32, 8)),
        "key": (Blocks(32 if channels <= 32 else 16, 64, 8), Blocks(32, 32), Blocks(32, 32, 8)),
    }[kernel][wide]


def listed_forward_launch(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, lse: Tensor,
    plan: TilePlan, lists: ListPlan, options: Options,
) -> Launch:  # fmt: skip
    """Fills **out** (T, H, D) and **lse** (H, T); **bias** is (H, P)."""
    args, blocks = _of_queries("forward", q, k, v, bias, plan, lists, options)
    return Launch(listed_forward_kernel, (len(args["tiles"]), k.size(1)), args | {"out": out, "lse": lse}, blocks)


def listed_backward_launches(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    dq: Tensor, dk: Tensor, dv: Tensor, dbias: Tensor | None, plan: TilePlan, lists: ListPlan, options: Options,
) -> list[Launch]:  # fmt: skip
    """Fill **dq**, **dk**, **dv** and **dbias** (H, P); the order matters."""
    heads, kv_heads = q.size(1), k.size(1)
    results = {"lse": lse, "grad": grad, "delta": torch.empty_like(lse)}
    args, blocks = _of_queries("query", q, k, v, bias, plan, lists, options)
    entries = lists.lists(args["ROWS"]).num_entries
    partial = None if dbias is None else lse.new_empty(heads, entries)
    args |= results | {"out": out, "dq": dq, "partial": partial, "entries": entries}
    launches = [Launch(listed_query_kernel, (len(args["tiles"]), kv_heads), args, blocks)]
    if dbias is not None:
        runs = lists.pair_runs(args["ROWS"])
        sums = {"partial": partial, "runs": runs.runs, "dbias": dbias, "pairs": lists.num_pairs, "entries": entries}
        sums |= {"most": runs.most, "most_tiles": runs.most_tiles, "PAIRS": 128}
        launches.append(Launch(pair_kernel, (triton.cdiv(lists.num_pairs, 128), heads), sums, Blocks(1, 128)))

    blocks = listed_blocks("key", q.dtype, q.size(2))
    keys = min(blocks.keys, max(SMALLEST, triton.next_power_of_2(lists.longest)))
    args = _common(q, k, v, bias, plan, lists, options, lists.lists(keys, of_keys=True).args)
    args |= results | {"dk": dk, "dv": dv, "ROWS": blocks.rows, "KEYS": keys}
    return [*launches, Launch(listed_key_kernel, (len(args["tiles"]), kv_heads), args, blocks)]


def _of_queries(
    kernel: str, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, plan: TilePlan, lists: ListPlan, options: Options
) -> tuple[dict[str, Any], Blocks]:
    """Tiles of queries: as many tokens as a node has, times the heads that share keys, if that fits."""
    blocks = listed_blocks(kernel, q.dtype, q.size(2))
    heads = triton.next_power_of_2(q.size(1) // k.size(1))
    rows = min(max(blocks.rows // heads, 1), triton.next_power_of_2(max(lists.longest, 1)))
    rows = max(rows, SMALLEST // heads)
    args = _common(q, k, v, bias, plan, lists, options, lists.lists(rows).args)
    return args | {"HEADS": heads, "ROWS": rows, "KEYS": blocks.keys}, blocks


def _common(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, plan: TilePlan, lists: ListPlan, options: Options,
    of_tiles: dict[str, Tensor],
) -> dict[str, Any]:  # fmt: skip
    return of_tiles | {
        "q": q, "k": k, "v": v, "bias": bias, "node": plan.node, "at": plan.at, "limit": plan.limit,
        "token": lists.token, "tokens": q.size(0), "pairs": lists.num_pairs,
        "scale": options.scale, "softcap": options.softcap, "window": options.window,
        "SEQUENCE": plan.sequence, "PRECISION": precision_of(q.dtype), "GROUP": q.size(1) // k.size(1),
        "H_KV": k.size(1), "D": q.size(2), "BLOCK_D": max(SMALLEST, triton.next_power_of_2(q.size(2))),
    }  # fmt: skip

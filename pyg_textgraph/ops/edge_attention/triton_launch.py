"""Which kernels edge attention runs on what, without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
from torch import Tensor

from pyg_textgraph.ops.edge_attention.triton_kernels import attend_kernel, chunk_kernel, key_kernel, query_kernel
from pyg_textgraph.ops.launch import Blocks, Launch
from pyg_textgraph.ops.reverse_index import CHUNK, ReverseIndex


def blocks_of(kernel: str, slots: int, channels: int) -> Blocks:
    """Lists per program, or for keys pointers at a time: a tile of them is held in registers."""
    if kernel == "key":
        return Blocks(4 if channels > 64 else 8, warps=1)
    size = slots * channels
    return Blocks(max(1, 2048 // size), warps=min(16, max(4, size // 512)))


@dataclass(frozen=True)
class Inputs:
    """**q** (B, n, H, D); **k**, **v** (B, N, G, D); **index**, **weight** (B, n, G, S); **node_tau** (B, n, H)."""

    q: Tensor
    k: Tensor
    v: Tensor
    index: Tensor
    weight: Tensor
    node_tau: Tensor
    edge_tau: Tensor


class Gradients(NamedTuple):
    """Shaped like the inputs; **step** (B, n, H, S) is the gradient of q·k."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    dweight: Tensor
    dnode: Tensor
    dedge: Tensor
    step: Tensor


def attend_launch(inputs: Inputs, out: Tensor, attention: Tensor) -> Launch:
    """Fills **out** (B, n, H, D) and **attention** (B, n, H, S)."""
    return _over_lists(attend_kernel, "attend", _common(inputs) | {"out": out, "attention": attention})


def backward_launches(
    inputs: Inputs, attention: Tensor, grad: Tensor, grad_attention: Tensor, gradients: Gradients,
    reverse: ReverseIndex,
) -> list[Launch]:  # fmt: skip
    """Fill the gradients, in this order; **reverse**: who points to which key."""
    to = gradients._asdict()
    args = _common(inputs) | {"attention": attention, "grad": grad, "grad_attention": grad_attention} | to
    queries = {name: x for name, x in args.items() if name not in ("dk", "dv")}

    blocks = blocks_of("key", args["BLOCK_S"], args["BLOCK_D"])
    shared = {name: args[name] for name in ("q", "attention", "grad", "step", "R", "S", "D", "BLOCK_D")}
    shared |= {"pointer": reverse.pointer, "CHUNK": CHUNK, "ROWS": blocks.rows}
    shared["partial"] = attention.new_empty(reverse.num_chunks, 2, inputs.q.size(-1))
    rows = inputs.k.shape[:3].numel()
    chunks = shared | {"named": reverse.row, "rows": rows}
    keys = shared | {"start": reverse.start, "dk": gradients.dk, "dv": gradients.dv}
    return [
        _over_lists(query_kernel, "query", queries),
        Launch(chunk_kernel, (reverse.num_chunks,), chunks, blocks),
        Launch(key_kernel, (rows,), keys, blocks),
    ]


def _over_lists(kernel: Any, name: str, args: dict[str, Any]) -> Launch:
    blocks = blocks_of(name, args["BLOCK_S"], args["BLOCK_D"])
    return Launch(kernel, (triton.cdiv(args["lists"], blocks.rows),), args | {"ROWS": blocks.rows}, blocks)


def _common(inputs: Inputs) -> dict[str, Any]:
    q, k, index = inputs.q, inputs.k, inputs.index
    batch, queries, groups, s = index.shape
    return vars(inputs) | {
        "lists": batch * queries * groups, "queries": queries, "keys": k.size(1), "scale": q.size(-1) ** -0.5,
        "G": groups, "R": q.size(2) // groups, "S": s, "BLOCK_S": triton.next_power_of_2(s),
        "D": q.size(-1), "BLOCK_D": triton.next_power_of_2(q.size(-1)),
    }  # fmt: skip

"""Compiles all kernels for GPUs that need not be here; fails where registers spill.

python -m tools.kernel_resources                                  # the shapes that we advertise
python -m tools.kernel_resources --types fp32 --channels 32 256   # others
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention.triton_launch import Options, backward_launches, forward_launch
from pyg_textgraph.ops.graph_attention.triton_listed_launch import listed_backward_launches, listed_forward_launch
from pyg_textgraph.ops.graph_attention.triton_lists import ListPlan
from pyg_textgraph.ops.graph_attention.triton_plan import TilePlan
from pyg_textgraph.ops.launch import Launch
from tools.pointer_launches import HEADS, edge_attention_launches, shapes_of_edges

TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64",
    torch.bool: "i1", int: "i32", float: "fp32",
}  # fmt: skip
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
# shared memory that one program may take, KiB
SHARED = {80: 163, 90: 227}


@dataclass(frozen=True)
class Resources:
    """What a program of a compiled kernel needs."""

    registers: int
    spilled: int  # bytes of stack: our kernels keep nothing else there
    shared: int  # bytes


def launches(dtype: torch.dtype, channels: int, case: str) -> list[Launch]:
    """What one step launches at Llama-3.2-1B's 32 and 8 heads.

    Cases: ``plain``; ``hard``, with soft cap and window; ``short``, the same with one token per node.
    """
    nodes, size, heads, kv_heads = (512, 1, 32, 8) if case == "short" else (8, 64, 32, 8)
    hard = case != "plain"
    tokens = nodes * size
    node = torch.arange(nodes).repeat_interleave(size)
    position = torch.arange(size).repeat(nodes)
    ptr, is_target = torch.tensor([0, tokens]), node == nodes - 1
    layout = TokenLayout(node, ptr, node, position, is_target, torch.tensor([nodes]), "prefix")
    plan = TilePlan(ptr, node, position, is_target, layout.mode)
    q, out, grad, dq = torch.empty(4, tokens, heads, channels, dtype=dtype)
    k, v, dk, dv = torch.empty(4, tokens, kv_heads, channels, dtype=dtype)
    bias, dbias = torch.empty(2, 1, heads, nodes, nodes)
    lse = torch.empty(heads, tokens)
    options = Options(channels**-0.5, 50.0 if hard else None, 7 if hard else None)
    results = (out, lse, grad, dq, dk, dv)
    forward = forward_launch(q, k, v, bias, out, lse, plan, options)
    dense = [forward, *backward_launches(q, k, v, bias, *results, dbias, plan, options)]

    pairs = torch.combinations(torch.arange(nodes)).T.contiguous()
    lists = ListPlan(layout, pairs)
    bias, dbias = torch.empty(2, heads, pairs.size(1))
    forward = listed_forward_launch(q, k, v, bias, out, lse, plan, lists, options)
    return [*dense, forward, *listed_backward_launches(q, k, v, bias, *results, dbias, plan, lists, options)]


def source(launch: Launch) -> ASTSource:
    """The launch's arguments as types: as when run, what is None or in capitals is fixed at compile time."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for place, name in enumerate(launch.kernel.arg_names):
        value = launch.args[name]
        if isinstance(value, Tensor):
            signature[name] = "*" + TYPES[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        elif name.isupper() or value is None:
            signature[name], constants[(place,)] = "constexpr", value
        else:
            signature[name] = TYPES[type(value)]
    return ASTSource(launch.kernel, signature, constants, attributes)


def resources(launch: Launch, capability: int) -> Resources:
    """Compiles for sm_80 (80), sm_90 (90), …"""
    options = {"num_warps": launch.blocks.warps, "num_stages": launch.blocks.stages}
    compiled = triton.compile(source(launch), target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.run([str(CUOBJDUMP), "-res-usage", file.name], check=True, capture_output=True, text=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage.stdout)
    assert found is not None, usage.stdout
    return Resources(int(found[1]), int(found[2]), compiled.metadata.shared)


def attention_launches(
    shapes: Iterable[tuple[torch.dtype, int, str]],
) -> Iterator[tuple[torch.dtype, int, str, Launch]]:
    """Type, channels, case and launch of graph attention's kernels."""
    for dtype, channels, case in shapes:
        for launch in launches(dtype, channels, case):
            name = launch.kernel.__name__
            if name not in ("node_kernel", "pair_kernel") or (channels, case) == (64, "plain"):  # know no channels
                yield dtype, channels, case, launch


def pointer_launches(dtypes: Iterable[torch.dtype]) -> Iterator[tuple[torch.dtype, int, str, Launch]]:
    """Type, channels, case and launch of the Graph Machine's kernels."""
    for dtype, channels in product(dtypes, HEADS):
        for launch in edge_attention_launches(dtype, channels):
            yield dtype, channels, "edges", launch
    for case, of_case in shapes_of_edges().items():
        for launch in of_case:
            yield torch.float32, 0, case, launch


def report(found: Iterable[tuple[torch.dtype, int, str, Launch]], capabilities: list[int]) -> bool:
    """Prints one line per kernel; whether everything fits."""
    good = True
    print("kernel                     type         D case     sm warps registers  spilled   shared")
    for dtype, channels, case, launch in found:
        name = launch.kernel.__name__
        if "dq" in launch.args and "partial" in launch.args:
            name = "+".join(x for x in ("dq", "partial") if launch.args[x] is not None)
        for capability in capabilities:
            need = resources(launch, capability)
            fits = need.spilled == 0 and need.shared <= SHARED[capability] * 1024
            good &= fits
            line = f"{name:26} {TYPES[dtype]:9} {channels or '':4} {case:7} {capability:3} "
            line += f"{launch.blocks.warps:5} {need.registers:9} {need.spilled:8} {need.shared:8}"
            print(line if fits else line + "  <--", flush=True)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--types", nargs="+", default=["bf16"])
    parser.add_argument("--capabilities", type=int, nargs="+", default=[80, 90])
    parser.add_argument("--cases", nargs="*", default=["plain", "hard", "short"], help="of graph attention")
    args = parser.parse_args()
    dtypes = [dtype for dtype in (torch.bfloat16, torch.float16, torch.float32) if TYPES[dtype] in args.types]
    attention = attention_launches(product(dtypes, args.channels, args.cases))
    fits = report(chain(attention, pointer_launches(dtypes)), args.capabilities)
    sys.exit(0 if fits else "some kernels spill registers or do not fit")


if __name__ == "__main__":
    main()

"""Times the Graph Machine's ops and its sparse layer on a GPU, forward and backward, against their dense counterparts.

The cases of ``benchmarks/graph_machine/run.py``, features in bfloat16 and edges in float32. A layer is many small
kernels, so it is also timed as a CUDA graph, and so is the dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from benchmarks.common import Row, Run
from benchmarks.gpu.run import measured
from benchmarks.gpu.script import main
from benchmarks.graph_machine.run import BUDGET, EDGES, SHAPES, attention_case, layer_case, random_pointers, step
from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.ops import mix, refer

TOKENS, DRY = 4096, 32


def mix_case(n: int, device: str) -> dict[str, Run]:
    """What a referral mixes: its own edges and the eight nearest tokens, into both legs."""
    edges, nearest = random_pointers(n, EDGES, BUDGET, device), SparseEdges.causal_window(n, 8, device=device)
    groups = [(x.index, x.weight.clone().requires_grad_()) for x in (edges, nearest)]
    logits = torch.randn(n, EDGES + 8, 2 * EDGES).to(device).requires_grad_()
    heat = (torch.rand(n, 2 * EDGES).to(device) + 0.5).requires_grad_()
    inputs = [*(weight for _, weight in groups), logits, heat]

    def run(backend: Literal["auto", "blocked"]) -> Tensor:
        return mix(groups, logits, BUDGET, heat, backend=backend)[1]

    return {
        "ours": partial(step, partial(run, "auto"), inputs),
        "PyTorch": partial(step, partial(run, "blocked"), inputs),
    }


def refer_case(n: int, device: str) -> dict[str, Run]:
    """The two legs of all edges."""
    first, second = (random_pointers(n, EDGES, BUDGET, device) for _ in range(2))
    inputs = [x.weight.requires_grad_() for x in (first, second)]

    def run(backend: Literal["auto", "gathered"]) -> Tensor:
        legs = (first.index, inputs[0], second.index, inputs[1])
        return refer(*legs, BUDGET, backend=backend)[1]

    return {
        "ours": partial(step, partial(run, "auto"), inputs),
        "PyTorch": partial(step, partial(run, "gathered"), inputs),
    }


class Captured:
    """A run as a CUDA graph, captured when first called."""

    def __init__(self, run: Run) -> None:
        self.run, self.graph = run, torch.cuda.CUDAGraph()
        self.ready = False

    def __call__(self) -> None:
        if not self.ready:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(3):
                    self.run()
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(self.graph):
                self.run()
            self.ready = True
        self.graph.replay()


def captured(make: Callable[[], dict[str, Run]]) -> dict[str, Run]:
    return {name: Captured(run) for name, run in make().items()}


def shapes(n: int, device: str, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], dict[str, Run]]]]:
    """Names as in ``benchmarks/graph_machine``; graphs last, as a capture that fails may take the process with it."""
    names = {}
    for d, (heads, groups, dim) in SHAPES.items():
        names[d] = f"n={n} d={d} heads={heads} groups={groups} head_dim={dim} K={EDGES} s={BUDGET}"
        yield f"attention {names[d]}", partial(attention_case, n, d, device, dtype)
        yield f"layer {names[d]} R=3", partial(layer_case, n, d, device=device, dtype=dtype)
    yield f"mix n={n} K={EDGES} refresh=8 s={BUDGET}", partial(mix_case, n, device)
    yield f"refer n={n} K={EDGES} s={BUDGET}", partial(refer_case, n, device)
    if device == "cuda":
        for d, name in names.items():
            for what, make in (("attention", attention_case), ("layer", layer_case)):
                functions = partial(make, n, d, device=device, dtype=dtype)
                yield f"CUDA graph: {what} {name}", partial(captured, functions)


def rows_of(case: str, functions: dict[str, Run], repeats: int) -> Iterator[Row]:
    seconds, memory = measured(functions, repeats)
    for i, peer in enumerate(x for x in seconds if x != "ours" and "ours" in seconds):
        for metric, value in (("seconds", seconds), ("peak GiB", memory)):
            if value["ours"] == value["ours"]:  # memory is not known on a CPU
                row = {"case": case if i == 0 else f"against {peer}: {case}", "metric": metric, "value": value["ours"]}
                row |= {"peer": f"{peer}, same shapes, forward+backward", "peer_value": value[peer]}
                yield row | {"ratio": value["ours"] / value[peer], "repeats": repeats}


def cases(dry: bool) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    n, device, dtype = (DRY, "cpu", torch.float32) if dry else (TOKENS, "cuda", torch.bfloat16)
    torch.manual_seed(0)
    for case, functions in shapes(n, device, dtype):
        yield case, lambda case=case, make=functions: rows_of(case, make(), 2 if dry else 20)  # type: ignore[misc]


if __name__ == "__main__":
    main(__doc__, "few tokens", cases, "graph_machine")

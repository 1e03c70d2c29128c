"""What a training step of GraphFormers costs, against PLM+Max with the same encoder and the same packing.

A step is forward and backward of 32 centres, every neighbour a text of its own, in training mode. Time: median of steps
taken in turns. Memory: what the first step of a fresh process adds at its peak to what lay there before it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.common import Row, interleaved
from benchmarks.graphformers.report import record
from pyg_textgraph.data import NeighborBatch, PackedTexts
from pyg_textgraph.nn import GraphFormers, PooledTextEncoder, TextGraphEncoder, link_loss
from pyg_textgraph.pretrained import MINILM, fetch

MODELS = ("graphformers", "max")


def build(name: str, device: str) -> TextGraphEncoder:
    base = fetch(MINILM)[0]
    made = GraphFormers.from_pretrained(base) if name == "graphformers" else PooledTextEncoder.from_pretrained(base)
    return made.to(device).train()


def make_batch(centres: int, neighbors: int, tokens: int, device: str) -> NeighborBatch:
    """Random texts of **tokens** tokens each."""
    total = centres * (1 + neighbors)
    ids = torch.randint(1000, 30_000, (total * tokens,), generator=torch.Generator().manual_seed(0))
    texts = PackedTexts.pack(ids, torch.full((total,), tokens), centres)
    number = torch.arange(centres, total).view(centres, neighbors)
    return NeighborBatch(texts, number, torch.arange(total)).to(device)


def step(model: TextGraphEncoder, batch: NeighborBatch) -> Callable[[], None]:
    def go() -> None:
        model.zero_grad()
        link_loss(*model(batch).chunk(2)).backward()
        if batch.node.is_cuda:
            torch.cuda.synchronize()

    return go


def peak_memory(run: Callable[[], None], device: str) -> float:
    """GiB that a first step adds at its peak."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 2**30
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    run()
    return (resident("VmHWM") - before) / 2**20


def resident(field: str) -> int:
    """KiB by /proc."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def measure(neighbors: int, args: argparse.Namespace) -> list[Row]:
    batch = make_batch(args.batch, neighbors, args.tokens, args.device)
    seconds = interleaved({name: step(build(name, args.device), batch) for name in MODELS}, args.repeats)
    memory = {name: float(in_fresh_process(name, neighbors, args)) for name in MODELS}
    case = f"neighbours={neighbors} batch={args.batch} tokens={args.tokens} {args.device}"
    fair = "float32, dropout on, same texts, threads and packing; data preparation and optimizer left out on both sides"
    return [
        {"case": case, "metric": metric, "value": values["graphformers"], "peer": "PLM+Max, packed",
         "peer_value": values["max"], "ratio": values["graphformers"] / values["max"],
         "threads": torch.get_num_threads(), "fair": fair}
        for metric, values in (("seconds", seconds), ("GiB", memory))
    ]  # fmt: skip


def in_fresh_process(model: str, neighbors: int, args: argparse.Namespace) -> str:
    command = [sys.executable, "-m", "benchmarks.graphformers.cost", "--peak-of", model, "--neighbours", str(neighbors)]
    command += ["--batch", str(args.batch), "--tokens", str(args.tokens), "--device", args.device]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neighbours", type=int, nargs="*", default=[3, 5, 10, 20, 50, 100, 200])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--peak-of", choices=MODELS, help="only print one model's peak memory")
    parser.add_argument("--record", action="store_true", help="write the results beside this script")
    args = parser.parse_args()
    if args.peak_of:
        batch = make_batch(args.batch, args.neighbours[0], args.tokens, args.device)
        print(peak_memory(step(build(args.peak_of, args.device), batch), args.device))
        return
    rows: list[Row] = []
    for neighbors in args.neighbours:
        for row in measure(neighbors, args):
            print(f"{row['case']}  {row['metric']}  {row['value']:.3f}  PLM+Max {row['peer_value']:.3f}  "
                  f"ratio {row['ratio']:.4f}", flush=True)  # fmt: skip
            rows.append(row)
        if args.record:
            record(rows, sys.argv)


if __name__ == "__main__":
    main()

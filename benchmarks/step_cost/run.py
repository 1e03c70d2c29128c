"""What one training step of GTLM costs beside the plain language model's on the same tokens.

Both train the same LoRA on the same seven projections in bfloat16, supervise the same two tokens and compute logits
only there. The plain model reads the tokens causally, several graphs as a batch. Transforms are not counted.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch_geometric.transforms as T
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch_geometric.data import Batch
from transformers import AutoModelForCausalLM

from benchmarks.common import interleaved, write_results
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn import GTLM
from pyg_textgraph.nn.bias import BIASES
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD


@dataclass(frozen=True)
class Case:
    """Graphs of one size: random trees with ``extra`` more edges a node; the last two tokens of targets supervised."""

    name: str
    graphs: int
    nodes: int
    tokens: int
    k_hop: int | None = None
    extra: float = 1.0

    def batch(self) -> Batch:
        generator = torch.Generator().manual_seed(0)
        transform = T.Compose(
            [AddSPD(8, k_hop=self.k_hop), AddRRWP(16, k_hop=self.k_hop), AddMagneticLaplacian(q=0.25)]
        )
        return Batch.from_data_list([transform(self._graph(generator)) for _ in range(self.graphs)])

    def _graph(self, generator: torch.Generator) -> TextAttributedData:
        nodes, tokens = self.nodes, self.tokens
        child = torch.arange(1, nodes)
        parent = (torch.rand(nodes - 1, generator=generator) * child).long()
        extra = torch.randint(0, nodes, (2, round(self.extra * nodes)), generator=generator)
        ids = torch.randint(10, 1000, (nodes * tokens,), generator=generator)
        labels = torch.full((nodes * tokens,), -100)
        labels[tokens - 2 : tokens] = ids[tokens - 2 : tokens]
        return TextAttributedData(
            edge_index=torch.cat([torch.stack([child, parent]), extra], 1),
            input_ids=ids,
            num_tokens=torch.full((nodes,), tokens),
            labels=labels,
            target=0,
        )


CASES = (
    Case("gtlm nodes=61 tokens=976", 1, 61, 16),
    Case("gtlm graphs=4 nodes=31 tokens=1984", 4, 31, 16),
    Case("khop k=2 nodes=256 tokens=4096", 1, 256, 16, k_hop=2, extra=0.25),
)


def lora() -> LoraConfig:
    return LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad()
        loss().backward()

    return run


def gtlm_loss(model: GTLM, batch: Batch) -> Tensor:
    loss: Tensor = model(batch).loss
    return loss


def plain_step(model: nn.Module, batch: Batch) -> Callable[[], None]:
    ids = batch.input_ids.view(batch.num_graphs, -1)
    labels = batch.labels[batch.labels >= 0].view(batch.num_graphs, 2)
    keep = torch.tensor([ids.size(1) - 3, ids.size(1) - 2])

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):  # as in GTLM: adapters are float32
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    return step(model, loss)


def make_step(kind: str, case: Case) -> Callable[[], None]:
    """A training step of the plain model ("plain"), of GTLM ("gtlm") or of GTLM without its biases ("no bias")."""
    name, batch = fetch(SMOLLM2)[0], case.batch()
    if kind == "plain":
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16), lora()).train()
        return plain_step(model, batch)
    biases = BIASES if kind == "gtlm" else ()
    ours = GTLM.from_pretrained(name, lora=lora(), dtype=torch.bfloat16, k_hop=case.k_hop, biases=biases).train()
    return step(ours, partial(gtlm_loss, ours, batch))


def peak(kind: str, case: Case) -> float:
    """GiB that a step takes at most, in a process of its own; the loaded weights included."""
    command = [sys.executable, "-m", "benchmarks.step_cost.run", "--peak", kind, case.name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def print_peak(kind: str, case: Case) -> None:
    make_step(kind, case)()
    # not ru_maxrss: that remembers the process this one was started from
    kib = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert kib is not None
    print(int(kib[1]) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "CASE"), help="print one model's peak memory and stop")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak:
        print_peak(args.peak[0], next(case for case in CASES if case.name == args.peak[1]))
        return
    rows = []
    for case in CASES:
        kinds = {"gtlm": case.name, "no bias": f"no bias {case.name.split(' ', 1)[1]}"}
        steps = {kind: make_step(kind, case) for kind in ("plain", *kinds)}
        seconds = interleaved(steps, args.repeats)
        memory = {kind: peak(kind, case) for kind in ("plain", "gtlm")}
        for kind, label in kinds.items():
            label += " bfloat16 forward+backward"
            for name, metric, values in ((label, "seconds", seconds), (f"memory {label}", "peak GiB", memory)):
                if kind not in values:
                    continue
                row = {"case": name, "metric": metric, "value": values[kind]}
                row |= {"peer": "plain causal LM (SDPA), same tokens, labels and LoRA", "peer_value": values["plain"]}
                row |= {"ratio": values[kind] / values["plain"], "threads": args.threads, "repeats": args.repeats}
                rows.append(row | {"weights": fetch(SMOLLM2)[1]})
                print(f"{name}: {row['ratio']:.3f}", flush=True)
    write_results("step_cost", rows, sys.argv)


if __name__ == "__main__":
    main()

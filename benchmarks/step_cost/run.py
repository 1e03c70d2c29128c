"""What one training step of GTLM costs beside the plain language model's on the same tokens.

Both train the same LoRA on the same seven projections in bfloat16, supervise the same two tokens and compute logits
only there. The plain model reads the tokens causally, several graphs as a batch. Transforms are not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

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


def plain_step(model: nn.Module, batch: Batch) -> Callable[[], None]:
    ids = batch.input_ids.view(batch.num_graphs, -1)
    labels = batch.labels[batch.labels >= 0].view(batch.num_graphs, 2)
    keep = torch.tensor([ids.size(1) - 3, ids.size(1) - 2])

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):  # as in GTLM: adapters are float32
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    return step(model, loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    name, source = fetch(SMOLLM2)
    plain = get_peft_model(AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16), lora()).train()
    rows = []
    for case in CASES:
        batch = case.batch()
        models = {
            label: GTLM.from_pretrained(
                name, lora=lora(), dtype=torch.bfloat16, k_hop=case.k_hop, biases=biases
            ).train()
            for label, biases in ((case.name, BIASES), (f"no bias {case.name.split(' ', 1)[1]}", ()))
        }
        steps = {label: step(model, lambda m=model, b=batch: m(b).loss) for label, model in models.items()}
        seconds = interleaved({"plain": plain_step(plain, batch)} | steps, args.repeats)
        for label in models:
            rows.append({"case": f"{label} bfloat16 forward+backward", "metric": "seconds", "value": seconds[label],
                         "peer": "plain causal LM (SDPA), same tokens, labels and LoRA", "peer_value": seconds["plain"],
                         "ratio": seconds[label] / seconds["plain"], "threads": args.threads,
                         "repeats": args.repeats, "weights": source})  # fmt: skip
            print(f"{label}: {rows[-1]['ratio']:.3f}", flush=True)
    write_results("step_cost", rows, sys.argv)


if __name__ == "__main__":
    main()

"""The main job: GTLM on WordNet verbs, from nothing to a trained, evaluated, saved and reloaded model.

Which of 15 classes (motion, weather, …) is a verb? Every row of the table is trained on the same verbs and tested
on the same others. The text-only model is the same language model with the same training, without neighbours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor

from benchmarks.common import write_results
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.sampling import EgoTextDataset
from pyg_textgraph.train import Interrupted, TrainConfig, Trainer, class_scores, majority, neighbour_vote
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler

QUESTION = "Which class is this verb?"


@dataclass(frozen=True)
class Settings:
    train_nodes: int = 480
    validation_nodes: int = 64
    test_nodes: int = 300
    num_neighbors: int = 16
    max_target_tokens: int = 48
    max_neighbor_tokens: int = 8
    epochs: int = 1
    lr: float = 3e-4
    bias_lr: float = 2e-2
    rank: int = 32
    validations: int = 3


FULL = Settings(train_nodes=4000, validation_nodes=400, test_nodes=2000, epochs=2, validations=16)
SMOKE = Settings(train_nodes=16, validation_nodes=8, test_nodes=16, num_neighbors=4)


def some_nodes(mask: Tensor, size: int, seed: int = 0) -> Tensor:
    """A fixed random choice of the nodes of a mask."""
    nodes = mask.nonzero().view(-1)
    return nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))[:size]]


class Job:
    """One language model, trained with or without neighbours."""

    def __init__(self, name: str, data: TextAttributedData, settings: Settings, folder: Path, base: str) -> None:
        self.name, self.data, self.settings, self.folder = name, data, settings, folder / name
        self.with_graph = name == "gtlm"
        torch.manual_seed(0)
        self.model = GTLM.from_pretrained(
            base,
            lora=LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, lora_dropout=0.05),
            dtype=torch.bfloat16,
            **({} if self.with_graph else {"biases": ()}),
        )
        self.sampler = EgoTextSampler(settings.num_neighbors if self.with_graph else 0, num_hops=2)
        self.train = self.egos(some_nodes(data.train_mask, settings.train_nodes))

    def egos(self, nodes: Tensor, store_of: EgoTextDataset | None = None) -> EgoTextDataset:
        features = [AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)] if self.with_graph else []
        return self.sampler.dataset(
            self.data,
            nodes,
            tokenizer=self.model.tokenizer,
            store=None if store_of is None else store_of.to_graphs.store,
            question=QUESTION,
            max_target_tokens=self.settings.max_target_tokens,
            max_neighbor_tokens=self.settings.max_neighbor_tokens,
            transform=T.Compose(features),
        )

    def accuracy(self, nodes: Tensor, progress: str | None = None) -> float:
        scores = class_scores(
            self.model, self.egos(nodes, self.train), self.data.class_names, batch_size=32, progress=progress
        )
        return float((scores.argmax(-1) == self.data.y[nodes]).float().mean())

    def run(self, resume: bool) -> dict[str, object]:
        """Trains, evaluates and saves; a finished job is read back."""
        settings, result = self.settings, self.folder / "result.json"
        if resume and result.is_file():
            told: dict[str, object] = json.loads(result.read_text())
            return told
        validation = some_nodes(self.data.val_mask, settings.validation_nodes)
        config = TrainConfig(epochs=settings.epochs, batch_size=4, save_every=20)
        steps = config.epochs * -(-len(self.train) // config.batch_size)
        config = replace(config, validate_every=max(1, steps // settings.validations))
        optimizer = torch.optim.AdamW(self.model.param_groups(settings.lr, settings.bias_lr))
        start = time.perf_counter()
        history = Trainer(
            self.model, self.train, optimizer, config, self.folder, lambda _: self.accuracy(validation), self.name
        ).run(resume)
        trained = time.perf_counter() - start
        test = some_nodes(self.data.test_mask, settings.test_nodes)
        told = {"accuracy": self.accuracy(test, f"testing {self.name}"), "seconds": trained, "history": history}
        self.model.save_pretrained(self.folder / "model")
        result.write_text(json.dumps(told))
        return told


def plot(results: dict[str, dict[str, object]], path: Path) -> None:
    """Loss and validation accuracy of both models over the training steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for (name, result), style in zip(results.items(), ("--", "-"), strict=True):
        history: list[dict[str, float]] = result["history"]  # type: ignore[assignment]
        loss = torch.tensor([row["loss"] for row in history])
        width = max(1, min(10, len(loss) // 4))
        smooth = loss.unfold(0, width, 1).mean(-1)
        left.plot(range(width, len(loss) + 1), smooth, style, label=name)
        scored = [row for row in history if "score" in row]
        right.plot([row["step"] for row in scored], [row["score"] for row in scored], style, marker="o", label=name)
    left.set(xlabel="optimizer step", ylabel="loss per answer token (nats)", title="Training loss (running mean)")
    right.set(xlabel="optimizer step", ylabel="accuracy", title="Accuracy on validation verbs", ylim=(0, 1))
    for axis in (left, right):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def table(rows: list[tuple[str, float]], test_nodes: int) -> str:
    lines = [f"accuracy on {test_nodes} held-out verbs, all rows trained on the same verbs:"]
    return "\n".join([*lines, *(f"  {name:<28} {accuracy:.3f}" for name, accuracy in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="4,000 verbs, two epochs: hours on a laptop")
    parser.add_argument("--smoke", action="store_true", help="a few verbs only: does everything run?")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run stopped")
    parser.add_argument("--folder", type=Path, default=None, help="where checkpoints, figure and model go")
    parser.add_argument("--record", action="store_true", help="write the result beside this script")
    args = parser.parse_args()
    settings, size = (FULL, "full") if args.full else (SMOKE, "smoke") if args.smoke else (Settings(), "quick")
    folder = args.folder or Path("runs") / f"quickstart-{size}"
    begin = time.perf_counter()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # peft uses an old name of theirs

    base, source = fetch(SMOLLM2)
    print(f"language model: SmolLM2-135M-Instruct, from {source}")
    data = WordNetVerbs()[0]
    print(f"data: {data.num_nodes} verbs, {data.num_edges} typed edges, {len(data.class_names)} classes")
    train, test = some_nodes(data.train_mask, settings.train_nodes), some_nodes(data.test_mask, settings.test_nodes)
    answers = {"majority": majority(data.y, train, test), "neighbour vote": neighbour_vote(data, train, test)}
    rows = [(name, float((answer == data.y[test]).float().mean())) for name, answer in answers.items()]

    results: dict[str, dict[str, object]] = {}
    for name in ("text only", "gtlm"):
        job = Job(name, data, settings, folder, base)
        try:
            results[name] = job.run(args.resume)
        except Interrupted as stop:
            print(f"\n{stop}. Go on with --resume.")
            sys.exit(130)
        rows.append((name, float(results[name]["accuracy"])))  # type: ignore[arg-type]
    print(table(rows, test.numel()))
    plot(results, folder / "curves.png")
    print(f"figure: {folder / 'curves.png'}\nmodel: {folder / 'gtlm' / 'model'}")

    job.model = GTLM.from_pretrained(folder / "gtlm" / "model")
    five = test[:5]
    guess = class_scores(job.model, job.egos(five, job.train), data.class_names).argmax(-1)
    print("five verbs, classified by the reloaded model:")
    for node, answer in zip(five.tolist(), guess.tolist(), strict=True):
        right = data.class_names[data.y[node]]
        print(f"  {data.text[node][:60]:<60}  {data.class_names[answer]} (true: {right})")
    minutes = (time.perf_counter() - begin) / 60
    print(f"{minutes:.1f} minutes")
    if args.record:
        record = [
            {"case": f"{name} test={test.numel()}", "metric": "accuracy", "value": value, "settings": asdict(settings),
             "weights": source, "minutes": round(minutes, 1)}
            for name, value in rows
        ]  # fmt: skip
        write_results("quickstart", record, sys.argv)


if __name__ == "__main__":
    main()

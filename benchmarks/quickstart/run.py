"""The main job: GTLM on WordNet verbs, from nothing to a trained, evaluated, saved and reloaded model.

Which of 15 classes (motion, weather, …) is a verb? Every row of the table is trained on the same verbs and tested
on the same others. The text-only model is the same language model with the same training, without neighbours.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cli import interruptible, parse, resumable
from benchmarks.common import write_results
from benchmarks.node_jobs import Job, Method, Settings, some_nodes
from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.train import majority, neighbour_vote

QUICK = Settings("Which class is this verb?")
FULL = replace(QUICK, train_nodes=4000, validation_nodes=400, test_nodes=2000, epochs=2, validations=16)
SMOKE = replace(QUICK, train_nodes=16, validation_nodes=8, test_nodes=16, num_neighbors=4)


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Loss and validation accuracy of both models over the training steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for (name, result), style in zip(results.items(), ("--", "-"), strict=True):
        history: list[dict[str, float]] = result["history"]
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
    parser = resumable(__doc__, None, "a few verbs only")
    parser.add_argument("--full", action="store_true", help="4,000 verbs, two epochs: hours on a laptop")
    args = parse(parser)
    settings, size = (FULL, "full") if args.full else (SMOKE, "smoke") if args.smoke else (QUICK, "quick")
    folder = args.folder or Path("runs") / f"quickstart-{size}"
    begin = time.perf_counter()

    base, source = fetch(SMOLLM2)
    print(f"language model: SmolLM2-135M-Instruct, from {source}")
    data = WordNetVerbs()[0]
    print(f"data: {data.num_nodes} verbs, {data.num_edges} typed edges, {len(data.class_names)} classes")
    train, test = some_nodes(data.train_mask, settings.train_nodes), some_nodes(data.test_mask, settings.test_nodes)
    answers = {"majority": majority(data.y, train, test), "neighbour vote": neighbour_vote(data, train, test)}
    rows = [(name, float((answer == data.y[test]).float().mean())) for name, answer in answers.items()]

    results: dict[str, dict[str, Any]] = {}
    methods: tuple[Method, ...] = ("text only", "gtlm")
    for name in methods:
        job = Job(name, name, data, settings, folder, base)
        with interruptible():
            results[name] = job.run(args.resume)
        rows.append((name, results[name]["accuracy"]))
    print(table(rows, test.numel()))
    plot(results, folder / "curves.png")
    print(f"figure: {folder / 'curves.png'}\nmodel: {folder / 'gtlm' / 'model'}")

    job.model = GTLM.from_pretrained(folder / "gtlm" / "model")
    five = test[:5]
    guess = job.scores(five).argmax(-1)
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

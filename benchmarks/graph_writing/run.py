"""A GTLM restores a missing edge or node of a family tree, against the same language model on the graph as text.

See README.md. A run that was stopped goes on with --resume; --record writes the results.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.utils.data import Subset
from tqdm import tqdm

from benchmarks.cli import interruptible, parse, resumable
from benchmarks.common import Row, write_results
from benchmarks.graph_writing.task import (
    GRAMMARS,
    Method,
    Task,
    chance,
    episodes,
    exact,
    is_valid,
    make_model,
    make_prompt,
)
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import ActionSteps
from pyg_textgraph.nn import GraphWriter
from pyg_textgraph.train import TrainConfig, Trainer

LENGTH: dict[Task, int] = {"edge": 2, "node": 4}  # actions, the stop included
STOP_EVERY = 4
METHODS: tuple[Method, ...] = ("gtlm", "serialized")


@dataclass(frozen=True)
class Settings:
    """What a run is made of, besides task and method."""

    steps: int = 150
    batch_size: int = 4
    test_graphs: int = 100
    untrained_graphs: int = 40  # the first of them
    rank: int = 16
    lr: float = 5e-4
    bias_lr: float = 1e-2
    seed: int = 0


def write_all(writer: GraphWriter, task: Task, tests: list[TextAttributedData], case: str) -> list[Row]:
    """What the writer makes of the test graphs, the likeliest token each time."""
    results = []
    for start in tqdm(range(0, len(tests), 16), case, leave=False):
        results += writer.write(tests[start : start + 16], max_actions=LENGTH[task])
    marks = [exact(task, episode, written) for episode, written in zip(tests, results, strict=True)]
    valid = [is_valid(task, episode, written.graph) for episode, written in zip(tests, results, strict=True)]
    values = {
        f"exact {task}": sum(first for first, _ in marks),
        "exact graph, and stopped": sum(whole for _, whole in marks),
        "valid": sum(valid),
    }
    return [{"case": case, "metric": key, "value": round(value / len(tests), 4)} for key, value in values.items()]


def run(task: Task, method: Method, settings: Settings, folder: Path, resume: bool, smoke: bool = False) -> list[Row]:
    """Trains, tests and returns the rows; a finished run is read back."""
    kept = folder / "rows.json"
    if resume and kept.is_file():
        rows: list[Row] = json.loads(kept.read_text())
        return rows
    model, source = make_model(method, settings.rank, settings.seed, smoke)
    prompt = make_prompt(task, method, model.tokenizer)
    writer = GraphWriter(model, prompt)
    needed = settings.steps * settings.batch_size
    # of each STOP_EVERY families one teaches when to stop, all of them what to write
    sizes = (-(-needed * STOP_EVERY // ((LENGTH[task] - 1) * STOP_EVERY + 1)), 0, settings.test_graphs)
    tests = episodes(task, "test", sizes, settings.seed)
    before = folder / "untrained.json"
    if resume and before.is_file():
        rows = json.loads(before.read_text())
    else:
        few = tests[: settings.untrained_graphs]
        rows = write_all(writer, task, few, f"{method}, untrained test={len(few)}")
        folder.mkdir(parents=True, exist_ok=True)
        before.write_text(json.dumps(rows))
    train = ActionSteps(episodes(task, "train", sizes, settings.seed), GRAMMARS[task], prompt)
    length = LENGTH[task]
    chosen = [i for i in range(len(train)) if i % length < length - 1 or i // length % STOP_EVERY == 0]
    config = TrainConfig(batch_size=settings.batch_size, save_every=10, seed=settings.seed)
    optimizer = torch.optim.AdamW(model.param_groups(settings.lr, settings.bias_lr))
    start = time.perf_counter()
    Trainer(model, Subset(train, chosen[:needed]), optimizer, config, folder, name=f"{method} {task}").run(resume)
    about: Row = {"settings": asdict(settings), "weights": source}
    about["minutes_of_last_start"] = round((time.perf_counter() - start) / 60, 1)
    rows += [row | about for row in write_all(writer, task, tests, f"{method} test={len(tests)}")]
    if task == "edge":
        random = sum(chance(episode) for episode in tests) / len(tests)
        for row in rows:
            if row["metric"] == "exact edge":
                row |= {"peer": "random valid edge to the same person", "peer_value": round(random, 4)}
    if not smoke:
        model.save_pretrained(folder / "model")
    kept.write_text(json.dumps(rows))
    return rows


def main() -> None:
    parser = resumable(__doc__, Path("runs/graph_writing"), "a tiny random model, two steps")
    parser.add_argument("--task", choices=list(LENGTH), default="edge", help="what is missing")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS), help="who writes it")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="optimizer steps of each method")
    parser.add_argument("--test-graphs", type=int, default=Settings.test_graphs)
    parser.add_argument("--seed", type=int, default=0, help="of data, order and dropout")
    args = parse(parser)
    settings = Settings(steps=args.steps, test_graphs=args.test_graphs, seed=args.seed)
    if args.smoke:
        settings = Settings(steps=2, batch_size=2, test_graphs=2, rank=2, seed=args.seed)
    rows: list[Row] = []
    for method in args.method:
        folder = args.folder / f"{args.task}-{method}{'-smoke' if args.smoke else ''}"
        with interruptible():
            rows += run(args.task, method, settings, folder, args.resume, args.smoke)
    for row in rows:
        print(f"{row['case']:<34} {row['metric']:<26} {row['value']:.3f}")
    if args.record:
        print(write_results("graph_writing", rows, sys.argv, args.task))


if __name__ == "__main__":
    main()

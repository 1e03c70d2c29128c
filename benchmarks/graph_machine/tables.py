"""Writes the tables of README.md from the newest result file of each question."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LABELS = ("speed", "pretrain", "chase")


def newest(label: str) -> dict[str, Any] | None:
    """The newest result file of a question; the one about speed has no label in its name."""
    own = re.compile(r"-(pretrain|chase)\.json$")
    files = [f for f in sorted((HERE / "results").glob("*.json")) if (m := own.search(f.name)) is None or m[1] == label]
    files = [f for f in files if (own.search(f.name) is None) == (label == "speed")]
    return json.loads(files[-1].read_text()) if files else None


def table(report: dict[str, Any]) -> str:
    """Markdown, with a column for every key that some row has."""
    columns = list(dict.fromkeys(key for row in report["rows"] for key in row if key != "metric"))
    lines = [columns, ["---"] * len(columns), *([str(row.get(c, "")) for c in columns] for row in report["rows"])]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    where = f"{report['machine']}, {report['date']}, torch {report['versions']['torch']}"
    return f"{where}: {report['rows'][0]['metric']}\n\n{body}"


def main() -> None:
    readme = HERE / "README.md"
    text = readme.read_text()
    for label in LABELS:
        if (report := newest(label)) is not None:
            pattern = re.compile(rf"(<!-- {label} -->\n).*?(<!-- /{label} -->)", re.DOTALL)
            text = pattern.sub(lambda m, r=report: f"{m[1]}\n{table(r)}\n\n{m[2]}", text)
    readme.write_text(text)


if __name__ == "__main__":
    main()

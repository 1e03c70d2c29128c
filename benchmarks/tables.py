"""Writes the tables of all READMEs from the newest result file of each question."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- results -->", "<!-- /results -->"
HERE = Path(__file__).parent
# which questions the front page shows, under which heading
FRONT = {"quickstart": "Quick start", "step_cost": "Cost of a training step"}


def newest(question: str) -> dict[str, Any] | None:
    files = sorted((HERE / question / "results").glob("*.json"))
    found: dict[str, Any] | None = json.loads(files[-1].read_text()) if files else None
    return found


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def table(result: dict[str, Any]) -> str:
    rows = result["rows"]
    compared = any("ratio" in row for row in rows)
    metrics = {row["metric"] for row in rows}
    head = ["case", next(iter(metrics)) if len(metrics) == 1 else "value"]
    head += ["peer", "peer's", "ratio"] if compared else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        value = number(row["value"]) + ("" if len(metrics) == 1 else f" {row['metric']}")
        cells = [row["case"], value]
        if compared:
            known = "ratio" in row
            cells += [row["peer"], number(row["peer_value"]), f"**{row['ratio']:.2f}**"] if known else ["", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return "\n".join([*lines, "", f"{result['machine']}; {result['date']}; {versions}; `{result['command']}`"])


def filled(text: str, content: str) -> str:
    """The text with what stands between the two marks replaced."""
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a table is out of date")
    args = parser.parse_args()
    pages: dict[Path, str] = {}
    for readme in sorted(HERE.glob("*/README.md")):
        result = newest(readme.parent.name)
        if result is not None and BEGIN in readme.read_text():
            pages[readme] = filled(readme.read_text(), table(result))
    front = HERE.parent / "README.md"
    shown = {heading: newest(question) for question, heading in FRONT.items()}
    parts = [f"### {heading}\n\n{table(result)}" for heading, result in shown.items() if result is not None]
    if parts:
        pages[front] = filled(front.read_text(), "\n\n".join(parts))
    stale = [path for path, text in pages.items() if path.read_text() != text]
    if args.check:
        sys.exit(f"out of date, run `make tables`: {[str(p.relative_to(HERE.parent)) for p in stale]}" if stale else 0)
    for path in stale:
        path.write_text(pages[path])
        print(f"wrote {path.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()

"""Results of run.py and cost.py in one file, and the table and figure made from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Row, write_results
from benchmarks.tables import newest

HERE = Path(__file__).parent


def latest() -> list[Row]:
    """The rows of the newest result file, none if there is no file yet."""
    found = newest("graphformers")
    return found["rows"] if found else []


def record(rows: list[Row], argv: Sequence[str]) -> Path:
    """Writes new rows, and keeps those of the newest file that they do not replace."""
    new = {(row["case"], row["metric"]) for row in rows}
    kept = [row for row in latest() if (row["case"], row["metric"]) not in new]
    return write_results("graphformers", kept + rows, argv)


def table(rows: list[Row]) -> str:
    """P@1, NDCG and MRR of every job, and time and memory of a step, as Markdown."""
    cases: dict[str, dict[str, Row]] = {}
    for row in rows:
        cases.setdefault(row["case"], {})[row["metric"]] = row
    lines = ["| model | P@1 | NDCG | MRR |", "|---|---|---|---|"]
    for case, found in cases.items():
        if "p@1" in found:
            lines.append(f"| {case} | " + " | ".join(f"{found[m]['value']:.4f}" for m in ("p@1", "ndcg", "mrr")) + " |")
    lines += ["", "| step | seconds, against PLM+Max | GiB, against PLM+Max |", "|---|---|---|"]
    for case, found in cases.items():
        if "GiB" in found:
            cells = (f"{found[m]['value']:.3g} ({100 * (found[m]['ratio'] - 1):+.1f} %)" for m in ("seconds", "GiB"))
            lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(rows: list[Row], path: Path) -> None:
    """Time and memory of a step over the number of neighbours, ours and PLM+Max's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axis, metric in zip(axes, ("seconds", "GiB"), strict=True):
        some = [row for row in rows if row["case"].startswith("neighbours=") and row["metric"] == metric]
        some.sort(key=lambda row: neighbours(row["case"]))
        x = [neighbours(row["case"]) for row in some]
        axis.plot(x, [row["value"] for row in some], "-o", label="GraphFormers")
        axis.plot(x, [row["peer_value"] for row in some], "--s", label="PLM+Max")
        axis.set(xlabel="neighbours per centre", ylabel=f"{metric} of a training step", xscale="log", yscale="log")
        axis.legend()
        axis.grid(alpha=0.3)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)


def neighbours(case: str) -> int:
    return int(case.split()[0].split("=")[1])


if __name__ == "__main__":
    print(table(latest()))
    if any(row["case"].startswith("neighbours=") for row in latest()):
        figure(latest(), HERE / "cost.png")

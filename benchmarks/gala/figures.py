"""Draws the figures of README.md from the newest result files.

python -m benchmarks.gala.figures
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from benchmarks.common import Row
from benchmarks.tables import newest
from pyg_textgraph.viz import gala as viz

HERE = Path(__file__).parent
FAMILIES = ("ER", "SBM", "BA")


def retention(axes: list[Axes], rows: list[Row]) -> None:
    for ax, base in zip(axes, (1e4, 1e5, 1e6), strict=True):
        viz.plot_retention(base, ax=ax)


def gaps(axes: list[Axes], rows: list[Row]) -> None:
    for ax, family in zip(axes, FAMILIES, strict=True):
        for order in ("random", "bfs", "rcm"):
            points = [row for row in rows if row["case"] == f"attention by gap {family} order={order}"]
            if points:
                gap, value = (torch.tensor([row[key] for row in points]) for key in ("gap", "value"))
                viz.plot_against_gap(gap, value, order, bins=len(points), ax=ax)
        ax.set_title(family)


def ranks(axes: list[Axes], rows: list[Row]) -> None:
    by_hop: dict[str, dict[int, list[float]]] = {"correct": {}, "wrong": {}}
    for row in rows:
        if row["case"].startswith("rank at "):
            hop, _, group = row["case"].removeprefix("rank at ").partition(" hops, ")
            by_hop[group][int(hop)] = row["values"]
    viz.plot_rank_by_distance({group: found for group, found in by_hop.items() if found}, ax=axes[0])
    start = "change of neighbours' rank by fine-tuning, "
    changes = {row["case"].removeprefix(start): row["values"] for row in rows if row["case"].startswith(start)}
    if changes:
        viz.plot_rank_change(changes, ax=axes[1])


def accuracy(axes: list[Axes], rows: list[Row]) -> None:
    cases = {row["case"].removeprefix("semi-synthetic cora fanout=20,20 "): row for row in rows}
    points = {name: (row["seconds_per_question"], row["value"])
              for name, row in cases.items() if " " not in name and row.get("seconds_per_question")}  # fmt: skip
    if points:
        viz.plot_accuracy_against_time(points, ax=axes[0])


def main() -> None:
    (HERE / "figures").mkdir(exist_ok=True)
    for draw, panels in ((retention, 3), (gaps, 3), (ranks, 2), (accuracy, 1)):
        found = newest("gala", "" if draw is accuracy else draw.__name__)
        rows = found["rows"] if found else []
        figure, axes = plt.subplots(1, panels, figsize=(4.2 * panels, 3.4), squeeze=False, layout="constrained")
        draw(list(axes[0]), rows)
        if any(ax.has_data() for ax in axes[0]):
            figure.savefig(HERE / "figures" / f"{draw.__name__}.png", dpi=120)
        plt.close(figure)


if __name__ == "__main__":
    main()

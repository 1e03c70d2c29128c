"""Learning curves, and accuracy against what it costs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, float]]
_STYLES = ("-", "--", ":", "-.")
_MARKERS = "o^sDvx"


def read_log(path: str | Path) -> list[dict[str, float]]:
    """The rows of a ``log.csv`` that :class:`~pyg_textgraph.train.Trainer` wrote, without their empty fields."""
    with open(path, newline="") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


def plot_learning_curves(runs: Mapping[str, History | str | Path], *, smooth: int = 10) -> Figure:
    """Training loss, and validation scores where there are any, of one or several runs.

    Args:
        runs: By name, what :meth:`Trainer.run <pyg_textgraph.train.Trainer.run>` returned, or its ``log.csv``.
        smooth: Steps of the running mean of the loss; fewer for short runs.

    Raises:
        ValueError: If there are no runs, or one has no steps.
    """
    from matplotlib import pyplot as plt

    histories = {name: read_log(run) if isinstance(run, (str, Path)) else run for name, run in runs.items()}
    if not histories or not all(histories.values()):
        raise ValueError(
            f"plot_learning_curves: 'runs' is {list(histories)}, expected runs with at least one step each"
        )
    scored = any("score" in row for history in histories.values() for row in history)
    figure, axes = plt.subplots(1, 1 + scored, figsize=(4.5 * (1 + scored), 3.2), layout="constrained", squeeze=False)
    for i, (name, history) in enumerate(histories.items()):
        style = _STYLES[i % len(_STYLES)]
        width = max(1, min(smooth, len(history) // 4))
        loss = [row["loss"] for row in history]
        mean = [sum(loss[j : j + width]) / width for j in range(len(loss) - width + 1)]
        axes[0, 0].plot([row["step"] for row in history][width - 1 :], mean, style, label=name)
        rows = [row for row in history if "score" in row]
        if rows:
            steps, scores = [row["step"] for row in rows], [row["score"] for row in rows]
            axes[0, 1].plot(steps, scores, style, marker=_MARKERS[i % len(_MARKERS)], label=name)
    axes[0, 0].set(xlabel="optimizer step", ylabel="loss (nats)", title="Training loss, running mean")
    if scored:
        axes[0, 1].set(xlabel="optimizer step", ylabel="score", title="Validation")
    for ax in axes.flat:
        ax.legend()
        ax.grid(alpha=0.3)
    return figure


def plot_cost(
    curves: Mapping[str, Mapping[float, float]],
    *,
    size: str = "nodes",
    cost: str = "seconds",
    title: str = "Cost against size",
) -> Figure:
    """Cost against size on two logarithmic axes, one line per method: a slope of two is quadratic.

    Args:
        curves: By method, the cost of every size.
        size: Name and unit of the sizes.
        cost: Name and unit of the costs.
        title: Of the figure.

    Raises:
        ValueError: If a size or a cost is not positive.
    """
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for i, (name, curve) in enumerate(curves.items()):
        sizes = sorted(curve)
        wrong = [(x, curve[x]) for x in sizes if x <= 0 or curve[x] <= 0]
        if wrong:
            raise ValueError(f"plot_cost: {name!r} has size and cost {wrong[0]}, expected positive numbers")
        style, marker = _STYLES[i % len(_STYLES)], _MARKERS[i % len(_MARKERS)]
        ax.plot(sizes, [curve[x] for x in sizes], style, marker=marker, label=name)
    ax.set(xscale="log", yscale="log", xlabel=size, ylabel=cost, title=title)
    ax.legend()
    ax.grid(alpha=0.3, which="both")
    return figure

"""Figures of graph-aligned attention: retention, attention against distance, ranks, accuracy against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_textgraph.nn.gala import HeadStrengths, rope_mean_cosine, rope_retention
from pyg_textgraph.viz.panel import MARKERS, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_retention(base: float, dim: int = 64, longest: float = 1e5, ax: Axes | None = None) -> Figure:
    """Retention of rotary positions over distance: a head of ``dim`` channels, the exact curve and its envelope."""
    figure, ax = panel(ax)
    delta = torch.logspace(0, torch.tensor(longest).log10().item(), 400, dtype=torch.double)
    ax.plot(delta, rope_mean_cosine(delta, base, dim), color="0.7", linewidth=0.8, label=f"{dim} channels")
    ax.plot(delta, rope_retention(delta, base), label="exact")
    ax.plot(delta, rope_retention(delta, base, envelope=True), linestyle="--", label="envelope")
    ax.set(xscale="log", xlabel="distance in tokens", ylabel="retention", title=f"base {base:g}")
    ax.legend()
    return figure


def plot_against_gap(gap: Tensor, value: Tensor, label: str, bins: int = 12, ax: Axes | None = None) -> Figure:
    """Mean of a value of node pairs against their distance in the prompt, in bins of equal size.

    Shapes:
        - **gap**, **value** (P,)
    """
    figure, ax = panel(ax)
    order = gap.argsort()
    parts = [part for part in order.tensor_split(bins) if part.numel()]
    mean = torch.stack([value[part].mean() for part in parts])
    error = torch.stack([value[part].std(correction=0) / part.numel() ** 0.5 for part in parts])
    middle = torch.stack([gap[part].float().mean() for part in parts])
    number = len(ax.lines)  # one line per call
    line = ax.plot(middle, mean, marker=MARKERS[number % len(MARKERS)], markersize=4, label=label)[0]
    ax.fill_between(middle, mean - error, mean + error, alpha=0.2, color=line.get_color())
    ax.set(xlabel="tokens between the nodes", ylabel="attention score", title="attention against distance")
    ax.legend()
    return figure


def plot_rank_by_distance(ranks: Mapping[str, Mapping[int, Sequence[float]]], ax: Axes | None = None) -> Figure:
    """Mean rank of nodes against their distance from the ego in hops, one line per group such as "correct"."""
    figure, ax = panel(ax)
    for i, (name, by_hop) in enumerate(ranks.items()):
        hops = sorted(by_hop)
        rows = [torch.tensor(by_hop[hop], dtype=torch.double) for hop in hops]
        error = [float(row.std(correction=0) / row.numel() ** 0.5) for row in rows]
        mean = [float(row.mean()) for row in rows]
        ax.errorbar(hops, mean, yerr=error, marker=MARKERS[i % len(MARKERS)], capsize=3, label=name)
    ax.set_xticks(sorted({hop for by_hop in ranks.values() for hop in by_hop}))
    ax.set(xlabel="hops from the ego", ylabel="mean token rank (0 is best)", title="rank against distance")
    ax.legend()
    return figure


def plot_rank_change(changes: Mapping[str, Sequence[float]], ax: Axes | None = None) -> Figure:
    """How neighbours' average ranks change by fine-tuning, one box per group such as "corrected"."""
    figure, ax = panel(ax)
    ax.boxplot(list(changes.values()), showmeans=True)
    ax.set_xticks(range(1, len(changes) + 1), list(changes))
    ax.axhline(0, color="0.7", linewidth=0.8)
    ax.set(xlabel="answers", ylabel="change of average neighbour rank (tokens)", title="change by fine-tuning")
    return figure


def plot_accuracy_against_time(methods: Mapping[str, tuple[float, float]], ax: Axes | None = None) -> Figure:
    """One point per method: seconds per answer, accuracy; times that differ much are on a logarithmic axis."""
    figure, ax = panel(ax)
    for i, (name, (seconds, accuracy)) in enumerate(methods.items()):
        ax.scatter(
            seconds, accuracy, marker=MARKERS[i % len(MARKERS)], facecolors="none", edgecolors=f"C{i % 9}", label=name
        )
    times = [seconds for seconds, _ in methods.values()]
    ax.set(xlabel="seconds per answer", ylabel="accuracy", title="accuracy against time")
    if max(times) > 3 * min(times):
        from matplotlib.ticker import ScalarFormatter

        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(ScalarFormatter())
        ax.tick_params(which="minor", labelsize=7)
    ax.legend(fontsize=6)
    return figure


def plot_strengths(heads: HeadStrengths, ax: Axes | None = None) -> Figure:
    """Relative strength of every head."""
    figure, ax = panel(ax)
    image = ax.imshow(heads.values, cmap="Greens", vmin=0, aspect="auto")
    ax.set(xlabel="head", ylabel="layer", title=heads.method)
    figure.colorbar(image, ax=ax)
    return figure

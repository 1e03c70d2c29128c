"""Draws the figures of the documentation and the README: ``python -m docs.figures.draw``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from torch_geometric.data import Data

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from benchmarks import tables
from pyg_textgraph.data import SparseEdges, TextAttributedData, TokenLayout
from pyg_textgraph.nn.gala import inverse_distance
from pyg_textgraph.transforms import AddSPD
from pyg_textgraph.viz import gala as gala_figures

HERE = Path(__file__).parent
COLORS = ("#4477aa", "#66ccee", "#228833", "#ccbb44")
ARROW = {"arrowstyle": "-|>", "color": "0.35", "linewidth": 1.1, "shrinkA": 2, "shrinkB": 2}
TEXTS = ("sprint: run very fast", "run: move fast on foot", "move: change place", "which class?")
EDGES = torch.tensor([[0, 1, 3], [1, 2, 0]])  # the question points at what it asks about


def box(ax: Axes, x: float, y: float, width: float, height: float, text: str, color: str, size: float = 8) -> None:
    ax.add_patch(FancyBboxPatch((x, y), width, height, "round,pad=0.02,rounding_size=0.06", fc=color, ec="0.3", lw=0.8,
                                alpha=0.45))  # fmt: skip
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], **style: object) -> None:
    ax.annotate("", end, start, arrowprops=ARROW | style)


def graph() -> tuple[TextAttributedData, TokenLayout]:
    """Three verbs and a question, with as many tokens as words."""
    words = [text.replace(":", "").split() for text in TEXTS]
    tokens = torch.tensor([len(x) for x in words])
    data = TextAttributedData(edge_index=EDGES, num_nodes=4, target=3, num_tokens=tokens)
    data.input_ids = torch.arange(int(tokens.sum()))
    return data, TokenLayout.from_data(data, mode="prefix")


def overview() -> Figure:
    """A text graph, its packed tokens, and the bias per pair of nodes that enters attention."""
    _, layout = graph()
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(11, 3.3), width_ratios=(1.05, 1, 1.25), layout="constrained"
    )
    places = ((0.0, 1.1), (1.3, 2.1), (0.0, 3.1), (0.4, 0.0))
    for i, (x, y) in enumerate(places):
        box(left, x, y, 1.75, 0.5, TEXTS[i], COLORS[i], 9)
    for start, end in (((0.9, 1.65), (1.9, 2.08)), ((2.0, 2.65), (1.2, 3.08)), ((1.25, 0.55), (1.0, 1.08))):
        arrow(left, start, end)
    left.set(xlim=(-0.1, 3.2), ylim=(-0.2, 3.8), title="1  a graph of texts")
    words = [word for text in TEXTS for word in text.replace(":", "").split()]
    for place, stored in enumerate(layout.order.tolist()):
        node, y = int(layout.node[place]), len(words) - place
        middle.add_patch(Rectangle((0, y), 1.3, 0.92, fc=COLORS[node], alpha=0.45, lw=0))
        middle.text(0.65, y + 0.46, words[stored], ha="center", va="center", fontsize=8)
        middle.text(1.75, y + 0.46, int(layout.position[place]), ha="center", va="center", fontsize=8)
    middle.text(1.75, len(words) + 1.35, "position", ha="center", fontsize=8)
    middle.set(xlim=(-0.2, 2.4), ylim=(0.8, len(words) + 2), title="2  one sequence, no padding")
    seen = layout.visible().numpy()
    spd = AddSPD(4)(Data(edge_index=EDGES, num_nodes=4)).spd.view(4, 4)
    value = np.where(seen, spd[layout.node][:, layout.node].numpy(), np.nan).astype(float)
    value[value < 0] = 4  # unreachable
    image = right.imshow(value, cmap="viridis_r", vmin=0, vmax=4)
    edges = np.flatnonzero(np.diff(layout.node.numpy())) + 0.5
    for edge in edges:
        right.axhline(edge, color="white", linewidth=1.2)
        right.axvline(edge, color="white", linewidth=1.2)
    right.set(xlabel="key token", ylabel="query token", title="3  attention with a learned bias per node pair",
              xticks=[], yticks=[])  # fmt: skip
    bar = figure.colorbar(image, ax=right, shrink=0.85, ticks=range(5))
    bar.ax.set_yticklabels(["same node", "1 hop", "2 hops", "3 hops", "no path"], fontsize=8)
    for ax in (left, middle):
        ax.axis("off")
    return figure


def gtlm() -> Figure:
    """Where one layer's bias comes from."""
    figure, ax = plt.subplots(figsize=(8.5, 2.6), layout="constrained")
    rows = (
        ("hops, spd [N, N]", "table [H, 8]"),
        ("walks, rrwp [N, N, 16]", "MLP"),
        ("magnetic Laplacian λ, V", "kernel, MLP"),
    )
    for i, (feature, module) in enumerate(rows):
        y = 1.6 - 0.75 * i
        box(ax, 0, y, 2.4, 0.5, feature, COLORS[i])
        box(ax, 3.1, y, 1.5, 0.5, module, "0.8")
        arrow(ax, (2.45, y + 0.25), (3.08, y + 0.25))
        arrow(ax, (4.65, y + 0.25), (5.5, 1.1))
    ax.text(5.65, 1.1, "+", ha="center", va="center", fontsize=15)
    arrow(ax, (5.8, 1.1), (6.3, 1.1))
    box(ax, 6.35, 0.85, 1.9, 0.5, "bias [H, N, N]", COLORS[3])
    arrow(ax, (8.3, 1.1), (8.8, 1.1))
    box(ax, 8.85, 0.75, 2.6, 0.7, "softmax(q·k/√d + bias\nof the tokens' nodes)", "0.8")
    ax.text(1.2, 2.35, "transforms, once per graph", ha="center", fontsize=8, style="italic")
    ax.text(3.85, 2.35, "learned, per layer", ha="center", fontsize=8, style="italic")
    ax.set(xlim=(-0.1, 11.6), ylim=(-0.1, 2.55))
    ax.axis("off")
    return figure


def gala() -> Figure:
    """Why order costs attention, and what is added along the edges."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3), layout="constrained")
    gala_figures.plot_retention(1e4, ax=left)
    left.set_title("rotary positions forget distance, base 10,000")
    bias = inverse_distance(torch.tensor([[0, 1, 1, 3], [1, 2, 3, 4]]), 6)
    image = right.imshow(bias, cmap="Greens", vmin=0, vmax=1)
    for i in range(6):
        for j in range(6):
            right.text(j, i, f"{float(bias[i, j]):.2g}", ha="center", va="center", fontsize=8)
    right.set(xlabel="key's node", ylabel="query's node", title="bias 1/d, before λ per head")
    figure.colorbar(image, ax=right, shrink=0.85)
    return figure


def graphformers() -> Figure:
    """One layer: first tokens exchange, the result is one more key and value."""
    figure, ax = plt.subplots(figsize=(8.5, 2.9), layout="constrained")
    for i, name in enumerate(("centre", "neighbour 1", "neighbour 2")):
        y = 1.8 - 0.9 * i
        ax.text(-0.15, y + 0.25, name, ha="right", va="center", fontsize=8)
        for j, token in enumerate(("[CLS]", "w₁", "w₂", "w₃")):
            box(ax, 0.85 * j, y, 0.72, 0.5, token, COLORS[i])
    box(ax, 4.2, 1.0, 2.2, 0.9, "attention of the centre's\n[CLS] to all [CLS],\na bias per relation", "0.8")
    for y in (2.05, 1.15, 0.25):
        arrow(ax, (3.4, y), (4.18, 1.45))
    box(ax, 7.1, 1.2, 0.95, 0.5, "graph", COLORS[3])
    arrow(ax, (6.45, 1.45), (7.08, 1.45))
    for j, token in enumerate(("graph", "[CLS]", "w₁", "w₂", "w₃")):
        box(ax, 8.9 + 0.78 * j, 1.2, 0.68, 0.5, token, COLORS[3] if j == 0 else COLORS[0])
    arrow(ax, (8.1, 1.45), (8.85, 1.45))
    ax.text(10.8, 1.9, "keys and values of the centre's tokens,\nin the same layer", ha="center", fontsize=8)
    ax.set(xlim=(-1.3, 12.9), ylim=(-0.2, 2.5))
    ax.axis("off")
    return figure


def graph_machine() -> Figure:
    """A referral: two legs composed to one pointer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.7), layout="constrained", width_ratios=(1.5, 1))
    for i in range(8):
        box(left, i, 0, 0.7, 0.45, f"t{i}", COLORS[1] if i in (7, 4, 1) else "0.9")
    for start, end, height, style, label in (
        (7, 4, 1.0, "-", "first leg"), (4, 1, 1.0, "-", "second leg"), (7, 1, 1.9, "--", "the new edge"),
    ):  # fmt: skip
        a, b = start + 0.35, end + 0.35
        x = np.linspace(a, b, 40)
        y = 0.5 + height * (1 - ((x - (a + b) / 2) / ((a - b) / 2)) ** 2)
        left.plot(x, y, color="0.3", linestyle=style, linewidth=1.2)
        arrow(left, (x[-3], y[-3]), (x[-1], y[-1]))
        left.text((a + b) / 2, 0.58 + height, label, ha="center", fontsize=8)
    left.set(xlim=(-0.2, 8), ylim=(-0.1, 2.9), title="a referral follows pointers of pointers")
    left.axis("off")
    edges = SparseEdges.causal_window(8, 4)
    right.imshow(edges.to_dense().sum(0), cmap="Blues", vmin=0, vmax=4)
    right.set(xlabel="points to token", ylabel="token", title="the four first edges of every token")
    return figure


def measured() -> Figure:
    """Accuracy and cost, from the newest result files."""
    accuracy, cost = tables.newest("quickstart"), tables.newest("step_cost")
    if accuracy is None or cost is None:
        raise FileNotFoundError("measured: quickstart and step_cost have no result files to draw")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 2.8), layout="constrained")
    rows = accuracy["rows"]
    names = [row["case"].split(" test=")[0] for row in rows]
    bars = left.barh(names, [row["value"] for row in rows], color=COLORS[0])
    left.bar_label(bars, fmt="%.2f", padding=3)
    left.set(xlabel="accuracy", title="WordNet verbs, 15 classes", xlim=(0, 1))
    rows = [row for row in cost["rows"] if row["metric"] == "seconds" and row["case"].startswith(("gtlm", "khop"))]
    cases = [row["case"].split(" bfloat16")[0] for row in rows]
    places = np.arange(len(rows))
    for shift, key, label, hatch in ((-0.2, "value", "GTLM", ""), (0.2, "peer_value", "language model alone", "//")):
        bars = right.barh(places + shift, [row[key] for row in rows], 0.38, label=label, hatch=hatch, alpha=0.8)
        right.bar_label(bars, fmt="%.1f", padding=3)
    right.set_yticks(places, cases)
    right.set(xlabel="seconds", title="training step, same tokens", xlim=(0, 1.15 * max(r["peer_value"] for r in rows)))
    right.legend(fontsize=8)
    for ax in (left, right):
        ax.invert_yaxis()
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    f.__name__: f for f in (overview, gtlm, gala, graphformers, graph_machine, measured)
}


def draw(folder: Path = HERE) -> list[Path]:
    """Writes all figures as SVG, the same bytes each time."""
    paths = []
    with mpl.rc_context({"svg.hashsalt": "pyg_textgraph", "svg.fonttype": "path", "font.size": 9}):
        for name, make in FIGURES.items():
            figure = make()
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None})
            plt.close(figure)
    return paths


if __name__ == "__main__":
    draw()

"""Draws the figures of README.md: what pointer chasing came to, and the pointers of a model that learned it.

python -m benchmarks.graph_machine.figures --model runs/chase/hyperion-r3-0/model
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from benchmarks.common import Row
from benchmarks.graph_machine.chase import COLOURS, DEPTHS, REACH, follow, puzzles
from benchmarks.tables import newest
from pyg_textgraph.nn import GraphMachineLM
from pyg_textgraph.viz import plot_token_edges
from pyg_textgraph.viz.panel import MARKERS

HERE = Path(__file__).parent


def accuracy(rows: list[Row]) -> Figure:
    """Accuracy against the number of jumps, a line per variant."""
    lines: dict[str, dict[str, float]] = {}
    for row in rows:
        variant, _, depth = row["case"].partition(" at ")
        lines.setdefault(variant, {})[depth] = row["value"]
    figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for marker, (variant, values) in zip(MARKERS, lines.items(), strict=False):
        known = [depth for depth in DEPTHS if depth in values]
        ax.plot(known, [values[depth] for depth in known], marker=marker, label=variant)
    ax.set(ylabel="accuracy", ylim=(0, 1.03))
    ax.tick_params(axis="x", labelsize=8)
    ax.legend(fontsize=8)
    return figure


def pointers(model: GraphMachineLM, length: int = 28, seed: int = 0) -> Figure:
    """Edges after every sparse layer of the token with most jumps behind it; bars mark where its jumps lead."""
    ids = puzzles(seed, 1, length, COLOURS, REACH, roots=0.1)[0]
    back = (ids - COLOURS).clamp(min=0)
    token = int(follow(back)[1].argmax())
    with torch.no_grad():
        states = model.model(ids, output_edges=True).edges
    names = ["pad", *(f"colour {i}" for i in range(1, COLOURS + 1)), *(f"back {i}" for i in range(1, REACH + 1))]
    figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
    plot_token_edges(states, token, [names[i] for i in ids[0].tolist()], ax=ax)
    place = token
    while back[0, place]:
        place -= int(back[0, place])
        ax.axvspan(place - 0.4, place + 0.4, color="C1", alpha=0.2, linewidth=0)
    ax.set_title(f"edges of token {token}; orange: where its jumps lead")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model that chase.py saved")
    args = parser.parse_args()
    (HERE / "figures").mkdir(exist_ok=True)
    found = newest("graph_machine", "chase")
    if found is not None:
        accuracy(found["rows"]).savefig(HERE / "figures" / "chase.png", dpi=120)
    if args.model is not None:
        pointers(GraphMachineLM.from_pretrained(args.model).eval()).savefig(HERE / "figures" / "pointers.png", dpi=120)


if __name__ == "__main__":
    main()

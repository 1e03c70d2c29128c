"""Draws sweep.png from the newest result file of a sweep.

python -m benchmarks.attention.figure
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.common import Row
from benchmarks.tables import newest

PEERS = {"sdpa full, no bias": ("s", ":"), "sdpa causal, no bias": ("^", "--"), "sdpa with token bias": ("x", "-.")}
AXES = {
    "nodes": "nodes (16 tokens each)",
    "tokens per node": "tokens per node (976 tokens in all)",
    "graphs": "packed graphs (976 tokens in all)",
    "hops": "hops that are visible (256 nodes × 16 tokens)",
    "nodes at 2 hops": "nodes (16 tokens each, 2 hops visible)",
}


def panel(ax: Axes, rows: list[Row], sweep: str, dtype: str) -> None:
    """Milliseconds of ours and the peers over what the sweep changes."""
    rows = [row for row in rows if row["sweep"] == sweep and row["type"] == dtype]
    ours = {row["at"]: 1e3 * row["value"] for row in rows}
    ax.plot(list(ours), list(ours.values()), "o-", color="black", label="ours, with bias gradient")
    for peer, (marker, line) in PEERS.items():
        theirs = {row["at"]: 1e3 * row["peer_value"] for row in rows if row["peer"] == peer}
        if theirs:
            ax.plot(list(theirs), list(theirs.values()), marker + line, label=peer)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(list(ours), [str(x) for x in ours])
    ax.minorticks_off()
    ax.set(title=f"{sweep}, {dtype}", xlabel=AXES[sweep], ylabel="forward + backward, ms")


def draw(rows: list[Row], path: Path) -> None:
    types = sorted({row["type"] for row in rows}, reverse=True)
    figure, axes = plt.subplots(
        len(types), len(AXES), figsize=(4.2 * len(AXES), 3.6 * len(types)), squeeze=False, layout="constrained"
    )
    for line, dtype in zip(axes, types, strict=True):
        for ax, sweep in zip(line, AXES, strict=True):
            panel(ax, rows, sweep, dtype)
    axes[0, 0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "sweep.png")
    args = parser.parse_args()
    result = newest("attention", "sweep")
    if result is None:
        raise SystemExit("no sweep has been measured yet: python benchmarks/attention/run.py --sweep")
    draw(result["rows"], args.out)
    print(args.out)


if __name__ == "__main__":
    main()

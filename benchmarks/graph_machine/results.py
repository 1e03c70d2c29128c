"""Result files of the runs that take hours: reads each run's report and writes means, differences and spreads."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import Row, write_results


def compare(reports: list[dict[str, Any]], peer: str, metric: str) -> list[Row]:
    """One row per variant and measured point: the mean over seeds against the peer's.

    ``spread`` is the standard error of the difference of the two means, from the seeds of both; ``told_apart`` says
    whether the difference is more than twice that. With one seed on either side there is no spread, and no verdict.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        groups.setdefault(report["variant"], []).append(report)
    if peer not in groups:
        raise ValueError(f"results: no run of the peer {peer!r} among {', '.join(groups)}")
    rows = []
    for variant, runs in sorted(groups.items()):
        for point in runs[0][metric]:
            own, other = ([run[metric][point] for run in group] for group in (runs, groups[peer]))
            row: Row = {
                "case": f"{variant} at {point}",
                "metric": metric,
                "value": round(statistics.mean(own), 4),
                "seeds": len(own),
                "parameters": runs[0]["parameters"],
                "steps": runs[0]["steps"],
            }
            if variant != peer:
                row |= {
                    "peer": f"{peer}, same data, order and steps",
                    "peer_value": round(statistics.mean(other), 4),
                    "difference": round(statistics.mean(own) - statistics.mean(other), 4),
                }
                if min(len(own), len(other)) > 1:
                    error = (statistics.variance(own) / len(own) + statistics.variance(other) / len(other)) ** 0.5
                    row |= {"spread": round(error, 4), "told_apart": abs(row["difference"]) > 2 * error}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("label", choices=["pretrain", "chase"])
    parser.add_argument("runs", type=Path, nargs="+", help="folders that pretrain.py or chase.py wrote")
    parser.add_argument("--peer", default="dense")
    args = parser.parse_args()
    reports = [json.loads((run / "report.json").read_text()) for run in args.runs]
    metric = "loss" if args.label == "pretrain" else "accuracy"
    print(write_results("graph_machine", compare(reports, args.peer, metric), sys.argv, args.label))


if __name__ == "__main__":
    main()

"""Result files of the runs that take hours: reads each run's report and writes means, differences and spreads."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.common import Row, write_results

# every sparse variant against dense, referrals against none, and each part against the model that has it
PEERS = {
    "hyperion-r0": ("dense",),
    "hyperion-r1": ("dense", "hyperion-r0"),
    "hyperion-r3": ("dense", "hyperion-r0"),
    "theia-r0": ("dense",),
    "theia-r3": ("dense", "hyperion-r3"),
    "hyperion-r3-s": ("hyperion-r3",),
    "hyperion-r3-no-realignment": ("hyperion-r3",),
    "hyperion-r3-no-input-refresh": ("hyperion-r3",),
}


def seed_noise(groups: Mapping[str, Sequence[float]]) -> tuple[float, int]:
    """Variance between seeds, pooled over the variants that have several, and its degrees of freedom."""
    several = [values for values in groups.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    within = sum((len(values) - 1) * statistics.variance(values) for values in several)
    return within / max(1, freedom), freedom


def compare(reports: list[dict[str, Any]], metric: str) -> list[Row]:
    """One row per variant, measured point and peer of ``PEERS``: the mean over seeds against the peer's.

    ``spread`` is the standard error of the difference, from the noise between seeds pooled over all variants;
    ``told_apart`` says whether the difference is beyond the 95 % range of Student's t. Where no variant has two seeds
    there is no spread, and no verdict.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        runs.setdefault(report["variant"], []).append(report)
    rows = []
    for point in reports[0][metric]:
        values = {variant: [run[metric][point] for run in group] for variant, group in runs.items()}
        noise, freedom = seed_noise(values)
        for variant, own in sorted(values.items()):
            row: Row = {
                "case": f"{variant} at {point}",
                "metric": metric,
                "value": round(statistics.mean(own), 4),
                "seeds": len(own),
                "parameters": runs[variant][0]["parameters"],
                "steps": runs[variant][0]["steps"],
            }
            peers = [peer for peer in PEERS.get(variant, ()) if peer in values]
            rows += [row] if not peers else []
            for peer in peers:
                other = values[peer]
                difference = statistics.mean(own) - statistics.mean(other)
                against: Row = {
                    "peer": f"{peer}, same data, order and steps",
                    "peer_value": round(statistics.mean(other), 4),
                    "difference": round(difference, 4),
                }
                if freedom:
                    error = (noise * (1 / len(own) + 1 / len(other))) ** 0.5
                    beyond = abs(difference) > float(stats.t.ppf(0.975, freedom)) * error
                    against |= {"spread": round(error, 4), "told_apart": beyond}
                rows.append(row | against)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("label", choices=["pretrain", "chase"])
    parser.add_argument("runs", type=Path, nargs="+", help="folders that pretrain.py or chase.py wrote")
    args = parser.parse_args()
    reports = [json.loads((run / "report.json").read_text()) for run in args.runs]
    metric = "loss" if args.label == "pretrain" else "accuracy"
    print(write_results("graph_machine", compare(reports, metric), sys.argv, args.label))


if __name__ == "__main__":
    main()

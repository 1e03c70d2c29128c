"""The command line of the GPU benchmarks: --dry on a CPU, and a result file that grows case by case."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from benchmarks.common import Row, write_results

Case = tuple[str, Callable[[], Iterable[Row]]]


def main(doc: str | None, dry: str, cases: Callable[[bool], Iterator[Case]], label: str = "") -> None:
    """Runs a script.

    Args:
        doc: The script's docstring.
        dry: What --dry runs.
        cases: Takes whether the run is dry; gives each case's name and what measures it.
        label: Of the result file.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--dry", action="store_true", help=f"{dry} on the CPU: does everything start and end?")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/gpu")))
    args = parser.parse_args()
    if not args.dry and not torch.cuda.is_available():
        sys.exit(f"no GPU here; --dry runs {dry} on the CPU")
    rows: list[Row] = []
    for name, measure in cases(args.dry):
        print(name, flush=True)
        for row in measure():
            rows.append(row)
            print(f"    {row['metric']:24} {row['value']:9.5f} {row['ratio']:6.2f}× {row['peer']}", flush=True)
        # after every case: a run that is cut short keeps what it has
        path = write_results("gpu", rows, sys.argv, label=label, folder=args.out)
    print(path)

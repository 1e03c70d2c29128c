"""What every benchmark shares: timing, the machine's description, and the one format of result files."""

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
PACKAGES = ("torch", "torch-geometric", "transformers", "peft", "triton", "numpy", "scipy", "networkx")


def median_seconds(run: Callable[[], object], *, budget: float = 1.0, min_repeats: int = 3) -> float:
    """Median wall-clock time of ``run`` after one warm-up call, repeated until ``budget`` seconds are spent."""
    run()
    times: list[float] = []
    while len(times) < min_repeats or sum(times) < budget:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(case: str, value: float, peer: str, peer_value: float, metric: str = "seconds", **notes: Any) -> Row:
    """One comparison; ``ratio`` is ours divided by the peer's, so lower is better."""
    comparison = {"peer": peer, "peer_value": peer_value, "ratio": round(value / peer_value, 4)}
    return {"case": case, "metric": metric, "value": value, **comparison, **notes}


def machine() -> str:
    """Cores, processor, memory and accelerator in words."""
    cpu = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    parts = [f"{len(os.sched_getaffinity(0))} cores"]
    parts += [cpu[1].strip()] if cpu else []
    parts += [f"{round(int(memory[1]) / 2**20)} GiB"] if memory else []
    parts += [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join(parts)


def versions() -> dict[str, str]:
    """Python and the packages that matter, as far as they are installed."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_results(question: str, rows: list[Row], command: str) -> Path:
    """Writes ``benchmarks/<question>/results/<date>-<machine>.json`` and returns its path."""
    today, here = date.today().isoformat(), machine()
    path = Path(__file__).parent / question / "results" / f"{today}-{re.sub('[^a-z0-9]+', '-', here.lower())}.json"
    head = {"question": question, "command": command, "date": today, "machine": here, "versions": versions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return path


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""

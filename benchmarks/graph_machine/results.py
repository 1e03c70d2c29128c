"""Writes what was measured, with machine, versions and date."""

import datetime
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "torch-geometric", "transformers", "numpy")


def machine() -> str:
    """Such as ``2 cores, AMD EPYC, 24 GiB``."""
    cpuinfo = Path("/proc/cpuinfo")
    name = platform.processor() or platform.machine()
    if cpuinfo.exists():
        name = next(
            (line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line), name
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores, {name}, {memory:.0f} GiB{gpu}"


def write_results(folder: Path, question: str, rows: list[dict[str, Any]], label: str = "") -> Path:
    """Writes ``<date>-<machine>[-label].json`` and returns its path."""
    today = datetime.date.today().isoformat()
    slug = machine().lower().replace(",", "").replace(" ", "-")
    script = Path(sys.argv[0])
    report = {
        "question": question,
        "command": " ".join(["python", f"benchmarks/{script.parent.name}/{script.name}", *sys.argv[1:]]),
        "date": today,
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{today}-{slug}{f'-{label}' if label else ''}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path

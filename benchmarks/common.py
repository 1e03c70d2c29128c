"""What every benchmark shares: timing, the machine's description, and the one format of result files."""

import json
import os
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
Run = Callable[[], object]  # what is timed
PACKAGES = ("torch", "torch-geometric", "transformers", "peft", "triton", "numpy", "scipy", "networkx")


def device() -> str:
    """Where models go."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def finished(file: Path, resume: bool, settings: Mapping[str, Any] | None = None) -> Any:
    """What a finished run has left in its file, None without one; a run from the start removes it.

    Beside it stand the run's **settings** from its beginning, so that an unfinished one is not gone on with by another.

    Raises:
        ValueError: If a run of other **settings** is to be resumed.
    """
    beside = file.with_name("settings.json")
    if not resume:
        file.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)
    found = json.loads(file.read_text()) if file.is_file() else None
    if settings is not None:
        now = json.loads(json.dumps(settings))
        told = found[0] if isinstance(found, list) else found or {}
        other = json.loads(beside.read_text()) if beside.is_file() else told.get("settings", now)
        if other != now:
            raise ValueError(f"{file.parent} is of a run with {other}, expected {now}; remove it, or do not resume")
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(now))
    return found


def interleaved(runs: Mapping[str, Run], repeats: int) -> dict[str, float]:
    """Median seconds of each of ``runs``, taken in turns so that a busy moment of the machine hits all of them.

    Every run goes once before the clock starts.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn > 0:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


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


def write_results(
    question: str, rows: list[Row], argv: Sequence[str], label: str = "", folder: Path | None = None
) -> Path:
    """Writes ``<date>-<machine>.json`` and returns its path.

    Args:
        question: The folder's name.
        rows: ``case``, ``metric``, ``value``, and where there is something to compare with ``peer``, ``peer_value`` and
            ``ratio``, ours divided by the peer's.
        argv: ``sys.argv`` of one of the folder's scripts.
        label: Tells several result files of one folder apart; the file's name ends in it.
        folder: Where the file goes, ``benchmarks/<question>/results`` by default.
    """
    today, here = date.today().isoformat(), machine()
    command = shlex.join(["python", f"benchmarks/{question}/{Path(argv[0]).name}", *argv[1:]])
    about = f"{question} {label}".strip()
    head = {"question": about, "command": command, "date": today, "machine": here, "versions": versions()}
    name = "-".join(filter(None, [today, re.sub("[^a-z0-9]+", "-", here.lower()), label]))
    path = (folder or Path(__file__).parent / question / "results") / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    path.write_text(json.dumps(head)[:-1] + f', "rows": [\n  {lines}\n]}}\n')
    return path


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""

"""Tests the oldest and newest versions that ``pyproject.toml`` claims, with and without extras: ``make test-matrix``.

Every case gets a virtual environment of its own, deleted afterwards. torch stays what ``constraints.txt`` says.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("gguf", "ogb", "viz", "faiss", "parquet", "tensorboard")
SHOWN = ("torch-geometric", "transformers", "peft", "numpy")
# the parts that touch PyG, transformers and peft
TESTS = (
    "tests/data",
    "tests/transforms",
    "tests/sampling",
    "tests/datasets/test_wordnet.py",
    "tests/nn/test_bias.py",
    "tests/nn/test_gtlm.py",
    "tests/nn/test_gtlm_conv.py",
    "tests/nn/test_gtlm_decoding.py",
    "tests/nn/test_gtlm_storage.py",
    "tests/nn/test_graphformers.py",
    "tests/nn/gala",
    "tests/nn/models",
    "tests/train/test_trainer.py",
)
WITH_EXTRAS = ("tests/viz", "tests/train/test_predict.py", "tests/datasets/test_attach_text.py")


@dataclass(frozen=True)
class Case:
    """One environment: exact versions for some packages, the newest allowed for all others."""

    name: str
    pins: tuple[str, ...] = ()
    extras: bool = False


def oldest_pins() -> tuple[str, ...]:
    """``name==version`` of the lower bound of every dependency but torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+).*", requirement) for requirement in project["dependencies"]]
    assert all(bounds), "a dependency in pyproject.toml has no lower bound"
    return tuple(f"{bound[1]}=={bound[2]}" for bound in bounds if bound and bound[1] != "torch")


def cases() -> list[Case]:
    return [
        Case(f"{age}{', with extras' if extras else ''}", pins, extras)
        for age, pins in (("oldest", oldest_pins()), ("newest", ()))
        for extras in (False, True)
    ]


def run(case: Case, folder: Path, keep_going: bool, args: list[str]) -> bool:
    """Installs and tests one case; whether all is well."""
    python = str(folder / "bin" / "python")
    torch = next(line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch=="))
    extras = f"[{','.join(EXTRAS)}]" if case.extras else ""
    install = [python, "-m", "pip", "install", "--quiet", torch]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        install,
        [*install, *case.pins, f"{ROOT}{extras}", "pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100"],
        [python, "-m", "pip", "uninstall", "--quiet", "--yes", "pyg-textgraph"],  # the tests import the working tree
    ):
        if subprocess.run(command, check=False).returncode:
            print(f"-- {case.name}: could not be installed: {' '.join(case.pins)}")
            return False
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    versions = [line for line in listed.stdout.split() if line.split("==")[0].replace("_", "-") in SHOWN]
    print(f"-- {case.name}: {' '.join(versions)}", flush=True)
    tests = [*TESTS, *(WITH_EXTRAS if case.extras else ())]
    marks = ["-m", "not slow and not kernels and not model", "--durations=0", "--durations-min=60"]
    stop = [] if keep_going else ["--exitfirst"]
    without = [] if case.extras else ["-k", "not tensorboard"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *marks, *stop, *without, *args, *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    print(f"-- {case.name}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="run the cases whose name begins so")
    parser.add_argument("--pin", nargs="+", help="run one case of these versions instead, such as transformers==5.10.1")
    parser.add_argument("--extras", action="store_true", help="with --pin: install the extras, too")
    parser.add_argument("--keep-going", action="store_true", help="do not stop a case at its first failing test")
    args, rest = parser.parse_known_args()
    chosen = [Case("pinned", tuple(args.pin), args.extras)] if args.pin else cases()
    failed = []
    for case in chosen:
        if case.name.startswith(args.only or ""):
            with tempfile.TemporaryDirectory(prefix="pyg_textgraph_matrix_") as folder:
                if not run(case, Path(folder), args.keep_going, rest):
                    failed.append(case.name)
    sys.exit(f"failed: {'; '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

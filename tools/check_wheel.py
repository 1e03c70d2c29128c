"""Builds a wheel, installs it in an empty environment and uses it from outside the repository: ``make wheel``."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = """
import importlib, pkgutil, sys
from importlib.metadata import files, version
from pathlib import Path
import pyg_textgraph
here = Path(pyg_textgraph.__file__)
assert here.is_relative_to(sys.prefix), here
assert version("pyg-textgraph") == pyg_textgraph.__version__
for module in pkgutil.walk_packages(pyg_textgraph.__path__, "pyg_textgraph."):
    importlib.import_module(module.name)
from pyg_textgraph.datasets import WordNetVerbs
verbs = WordNetVerbs()[0]
assert verbs.num_nodes == len(verbs.text) == 13767, verbs
installed = {file.name for file in files("pyg-textgraph")}
assert {"py.typed", "WORDNET-LICENSE", "LICENSE"} <= installed, installed
assert not any(str(file).startswith(("tests", "benchmarks", "examples", "tools")) for file in files("pyg-textgraph"))
print(f"the wheel works: {len(installed)} files, {verbs}")
"""


def main() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pip = [sys.executable, "-m", "pip", "--quiet"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
        (wheel,) = folder.glob("*.whl")
        python = folder / "env" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
        # the dependencies, which are large, come from here: a line in a .pth file does not run the .pth files of the
        # folder that it names, so an editable installation of this repository is not found through it
        (site,) = (folder / "env").glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        subprocess.run([python, "-W", "ignore", "-c", SCRIPT], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()

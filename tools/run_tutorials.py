"""Runs tutorials from their first cell to their last and keeps what they print and draw: ``make tutorials``.

Outputs are checked: no errors, nothing on the error stream, no paths of this machine, small figures.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).parent.parent
LARGEST = 60_000  # bytes of a figure


def run(path: Path, folder: str) -> nbformat.NotebookNode:
    """The notebook with new outputs, executed in a folder."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata.clear()
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output["data"]["image/png"] = smaller(output["data"]["image/png"])
    return notebook


def smaller(png: str) -> str:
    """The same figure in 64 colours, base64 as before."""
    out = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(64).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What must not be committed."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            text = str(output)
            figure = output.get("data", {}).get("image/png", "")
            if output.get("name") == "stderr":
                found.append(f"cell {number} writes to the error stream: {output['text'][:200]}")
            if len(figure) * 3 // 4 > LARGEST:
                found.append(f"cell {number} draws {len(figure) * 3 // 4} bytes, expected at most {LARGEST}")
            if any(
                place in text.replace(figure, "") for place in (str(Path.home()) + "/", tempfile.gettempdir() + "/")
            ):
                found.append(f"cell {number} tells a path of this machine")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tutorials", nargs="*", type=Path, help="all by default")
    parser.add_argument("--folder", type=Path, default=None, help="where they run; an empty one by default")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = str(HERE)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    # tqdm where Jupyter's widgets are not installed, and peft, which calls transformers by an old name
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found,ignore::FutureWarning"
    wrong = []
    for path in args.tutorials or sorted((HERE / "tutorials").glob("*.ipynb")):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as empty:
            notebook = run(path, str(args.folder or empty))
        found = faults(notebook)
        wrong += [f"{path.name}: {fault}" for fault in found]
        if not found:
            nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - start:.0f} s, {len(found)} faults", flush=True)
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()

"""Every tutorial runs from its first cell to its last, and is committed with its outputs."""

import json
import pickle
from pathlib import Path

import matplotlib as mpl
import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy.sparse import csr_matrix

from tools.run_tutorials import faults

mpl.use("agg")
NOTEBOOKS = sorted((Path(__file__).parent.parent / "tutorials").glob("*.ipynb"))


def write_planetoid(raw: Path) -> None:
    """Files as PyG's ``Planetoid`` downloads them, of a small random graph in the place of Cora."""
    rng = np.random.default_rng(0)
    nodes, words, classes, train, test = 900, 64, 7, 140, 100
    y = np.arange(nodes) % classes
    x = (rng.random((nodes, words)) < 0.05).astype(np.float32)
    x[np.arange(nodes), y] = 1
    graph: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for source in range(nodes):
        for target in rng.integers(nodes, size=3).tolist():
            graph[source].append(target)
            graph[target].append(source)
    one_hot, known = np.eye(classes, dtype=np.int32)[y], nodes - test
    parts = {"x": csr_matrix(x[:train]), "y": one_hot[:train], "allx": csr_matrix(x[:known]), "ally": one_hot[:known],
             "tx": csr_matrix(x[known:]), "ty": one_hot[known:], "graph": graph}  # fmt: skip
    raw.mkdir(parents=True)
    for name, part in parts.items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (raw / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in range(known, nodes)))


@pytest.mark.tutorials
@pytest.mark.model
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if path.stem == "planetoid":
        write_planetoid(tmp_path / "data" / "Planetoid" / "Cora" / "raw")
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    figures = [o for cell in code for o in cell.outputs if "image/png" in o.get("data", {})]
    assert figures, "no figure"
    assert faults(notebook) == []


def test_outputs_that_must_not_be_committed_are_found() -> None:
    cell = nbformat.v4.new_code_cell("f()")
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="Warning: old name"),
        nbformat.v4.new_output("stream", name="stdout", text=f"wrote {Path.home()}/model"),
        nbformat.v4.new_output("display_data", {"image/png": "A" * 100_000}),
    ]
    found = faults(nbformat.v4.new_notebook(cells=[cell]))
    assert [word in fault for word, fault in zip(("error stream", "a path", "75000 bytes"), found, strict=True)] == [
        True
    ] * 3

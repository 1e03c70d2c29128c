import gzip
from pathlib import Path

import pytest

from pyg_textgraph.datasets import TextGraphFolder

NODES = '{"id": 0, "text": "one", "label": 1}\n{"id": 1, "text": "two", "label": 0}\n'


def write(folder: Path, nodes: str = NODES, edges: str = "0,1\n1,1\n", packed: bool = False) -> Path:
    for name, text in (("nodes.jsonl", nodes), ("edges.csv", edges), ("classes.json", '["a", "b"]')):
        if packed and not name.startswith("classes"):
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_reads_a_folder(tmp_path: Path, packed: bool) -> None:
    data = TextGraphFolder(write(tmp_path, packed=packed))[0]
    assert data.text == ["one", "two"]
    assert data.y.tolist() == [1, 0]
    assert data.class_names == ["a", "b"]
    assert data.edge_index.tolist() == [[0, 1], [1, 1]]
    assert "text_edges" not in data


def test_relations_and_no_labels(tmp_path: Path) -> None:
    data = TextGraphFolder(write(tmp_path, '{"id": 0, "text": "x"}\n', "0,0,@\n"))[0]
    assert data.text_edges == ["@"]
    assert "y" not in data


def test_some_labels_are_missing(tmp_path: Path) -> None:
    nodes = '{"id": 0, "text": "x", "label": 1}\n{"id": 1, "text": "y"}\n{"id": 2, "text": "z", "label": null}\n'
    data = TextGraphFolder(write(tmp_path, nodes))[0]
    assert data.y.tolist() == [1, -1, -1]
    assert data.class_names == ["a", "b"]


def test_no_edges(tmp_path: Path) -> None:
    assert TextGraphFolder(write(tmp_path, edges=""))[0].edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ('{"id": 1, "text": "x"}\n', "", "nodes.jsonl, line 1"),
        ("no json\n", "", "nodes.jsonl, line 1"),
        (NODES.replace("1}", "2}", 1), "", "nodes.jsonl, line 1: 'label' is 2, expected 0 to 1"),
        (NODES.replace("1}", "1.5}", 1), "", "nodes.jsonl, line 1: 'label' is 1.5"),
        (NODES, "0,1\n0\n", "edges.csv, line 2"),
        (NODES, "0,1\n0,1,@\n", "1 of 2 edges"),
        (NODES, "0,2\n", "node 2"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, nodes: str, edges: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextGraphFolder(write(tmp_path, nodes, edges))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nodes\.jsonl"):
        TextGraphFolder(tmp_path)

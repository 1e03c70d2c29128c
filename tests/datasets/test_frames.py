"""A user's own graph, out of tables of nodes and edges."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import Batch

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import from_csv, from_dataframes
from pyg_textgraph.transforms import EgoTextSampler, IncidenceGraph

NODES: dict[str, list[Any]] = {
    "id": ["c", "a", "b", "d"],
    "title": ["Cats", "Apes", "Bats", "Dogs"],
    "abstract": ["They purr.", None, "They fly.", "They bark."],
    "kind": ["pet", "wild", None, "pet"],
    "part": ["train", "Valid", "test", None],
}
EDGES: dict[str, list[Any]] = {
    "source": ["a", "b", "a", "a"],
    "target": ["c", "a", "d", "c"],
    "how": ["cites", "likes", "cites", "likes"],
}
OPTIONS: dict[str, Any] = {"text": "{title}. {abstract}", "relation": "how", "label": "kind", "split": "part"}


def check(data: TextAttributedData) -> None:
    assert data.text == ["Cats. They purr.", "Apes. ", "Bats. They fly.", "Dogs. They bark."]
    assert data.edge_index.tolist() == [[1, 2, 1, 1], [0, 1, 3, 0]]
    assert data.text_edges == EDGES["how"]
    assert (data.y.tolist(), data.class_names) == ([0, 1, -1, 0], ["pet", "wild"])
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert masks.tolist() == [[i == k for i in range(4)] for k in range(3)]
    assert data.validate()


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pa.table])
def test_any_table(kind: Any) -> None:
    check(from_dataframes(kind(NODES), kind(EDGES), **OPTIONS))


@pytest.mark.parametrize("end", ["", ".gz"])
def test_csv(tmp_path: Path, end: str) -> None:
    for name, table in (("nodes", NODES), ("edges", EDGES)):
        text = pd.DataFrame(table).to_csv(index=False)
        path = tmp_path / f"{name}.csv{end}"
        path.write_bytes(gzip.compress(text.encode()) if end else b"\xef\xbb\xbf" + text.encode())  # as Excel writes it
    check(from_csv(tmp_path / f"nodes.csv{end}", tmp_path / f"edges.csv{end}", **OPTIONS))


def test_texts(tmp_path: Path) -> None:
    nodes = {"id": [1, 2], "text": ["one", "two"], "year": [1999, None], "note": ["x", "y"]}
    edges: dict[str, list[int]] = {"source": [], "target": []}
    assert from_dataframes(nodes, edges).text == ["one", "two"]
    listed = from_dataframes(nodes, edges, text=["text", "year"])
    assert listed.text == ["text: one\nyear: 1999", "text: two"]
    assert listed.edge_index.shape == (2, 0)
    long = 'a, "quoted"\nline ' * 20_000
    pd.DataFrame({"id": [1], "text": [long]}).to_csv(tmp_path / "n.csv", index=False)
    (tmp_path / "e.csv").write_text("source,target\n")
    assert from_csv(tmp_path / "n.csv", tmp_path / "e.csv").text == [long]


def test_goes_through_the_sampler_and_incidence_graph(tokenizer: Any) -> None:
    data = from_dataframes(NODES, EDGES, **OPTIONS)
    egos = EgoTextSampler(3).dataset(data, [0, 1, 2, 3], tokenizer, question="Which kind?")
    batch = Batch.from_data_list(list(egos))
    assert batch.y.tolist() == [0, 1, -1, 0]
    supervised = [bool((egos[i].labels >= 0).any()) for i in range(4)]
    assert supervised == [True, True, False, True]  # an unknown label is no answer
    assert "likes" in IncidenceGraph()(data).text


def test_numbers_with_gaps() -> None:
    """pandas turns a column of integers with a gap into floats."""
    nodes = pd.DataFrame({"id": [10, 20, 30], "text": ["a", "b", "c"], "label": [2, np.nan, 10]})
    edges = pd.DataFrame({"source": [10.0, 30.0], "target": [20, 10]})
    data = from_dataframes(nodes, edges, label="label")
    assert data.edge_index.tolist() == [[0, 2], [1, 0]]
    assert (data.y.tolist(), data.class_names) == ([0, -1, 1], ["2", "10"])  # by value, not as words
    nodes["label"] = pd.array([2, None, 10], dtype="Int64")
    again = from_dataframes(nodes, edges, label="label", class_names=["10", "2"])
    assert again.y.tolist() == [1, -1, 0]


class TestErrors:
    def bad(
        self, match: str, nodes: dict[str, Any] | None = None, edges: dict[str, Any] | None = None, **changes: Any
    ) -> None:
        with pytest.raises(ValueError, match=match):
            from_dataframes(NODES | (nodes or {}), EDGES | (edges or {}), **(OPTIONS | changes))

    def test_ids(self) -> None:
        self.bad(r"in 2 of 4 rows of 'nodes', 'id' is there already; first row 2, 'a'", {"id": ["a", "b", "a", "b"]})
        self.bad(
            r"in 1 of 4 rows of 'nodes', 'id' is missing; first row 1, None", {"id": ["a", float("nan"), "c", "d"]}
        )
        self.bad(r"in 2 of 4 rows of 'edges', 'target' is not in nodes\['id'\]; first row 0, 'x'",
                 edges={"target": ["x", "a", "y", "c"]})  # fmt: skip
        self.bad(
            r"'source' is not in .* first row 0, 1; ids there are str, this is int", edges={"source": [1, 2, 3, 4]}
        )

    def test_texts(self) -> None:
        self.bad(
            r"in 1 of 4 rows of 'nodes', the text 'abstract' is missing; first row 1, None; pass missing=",
            text="abstract",
        )
        assert from_dataframes(NODES, EDGES, text="abstract", missing="-").text[1] == "-"
        self.bad("has no column 'body', only 'id', 'title'", text="{title} {body}")
        self.bad("the text of 'nodes' has the label 'kind' in it", text="{title} ({kind})")

    def test_labels_and_splits(self) -> None:
        self.bad(
            r"in 1 of 4 rows of 'nodes', 'kind' is none of the 1 'class_names'; first row 1, 'wild'",
            class_names=["pet"],
        )
        self.bad(r"'part' is none of train, val, .*; first row 2, 'dev'", {"part": ["train", "val", "dev", None]})
        self.bad("'how' is missing; first row 3", edges={"how": ["a", "b", "c", None]})

    def test_tables(self) -> None:
        self.bad("the columns of 'nodes' differ in length", {"id": ["a"]})
        with pytest.raises(TypeError, match="'nodes' is list, expected a data frame or a dict of columns"):
            from_dataframes([1, 2], EDGES)

    def test_files(self, tmp_path: Path) -> None:
        nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
        edges.write_text("source,target\n")
        nodes.write_text("id,text\n1,one\n2,two,three\n")
        with pytest.raises(ValueError, match=r"nodes.csv, line 3 has 3 fields, the header 2"):
            from_csv(nodes, edges)
        nodes.write_text('id,text\n1,"one\n')
        with pytest.raises(ValueError, match=r"nodes.csv, line 2: unexpected end of data"):
            from_csv(nodes, edges)
        nodes.write_text("id,id\n1,2\n")
        with pytest.raises(ValueError, match="expected different names"):
            from_csv(nodes, edges)
        nodes.write_text("id,text\n1,\n")
        with pytest.raises(ValueError, match="the text 'text' is missing"):
            from_csv(nodes, edges)
        with pytest.raises(FileNotFoundError):
            from_csv(tmp_path / "none.csv", edges)

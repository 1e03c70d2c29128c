"""Texts of benchmark graphs, out of miniature files in exactly the published formats."""

import gzip
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import TAGDataset

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import attach_text
from tests.tiny import tiny_tokenizer

PAPERS = [
    ("9657784", "Evasion attacks", "In adversarial settings, …"),
    ("39886162", "How hard is it?", 'On "hard" cases'),
    ("116214155", 'unbalanced "quote', "A tab\tinside."),
]
NODES, LABELS = "ogbn_arxiv/mapping/nodeidx2paperid.csv.gz", "ogbn_arxiv/mapping/labelidx2arxivcategeory.csv.gz"


def graph(num_nodes: int = 3) -> Data:
    y = torch.arange(num_nodes)[:, None] % 3
    return Data(x=torch.ones(num_nodes, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=y, num_nodes=num_nodes)


def packed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        file.write(text)


def tar(text: str) -> bytes:
    """As ``tar c titleabs.tsv``: a header of 512 bytes, the text, zeros to the end of the record."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("titleabs.tsv")
        info.size = len(text.encode())
        archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def lines(papers: list[tuple[str, ...]]) -> str:
    return "".join("\t".join(paper) + "\n" for paper in papers)


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    ids = "".join(f"{i},{paper[0]}\n" for i, paper in enumerate(PAPERS))
    packed(tmp_path / NODES, f"node idx,paper id\n{ids}")
    packed(
        tmp_path / LABELS,
        "label idx,arxiv category\n0,arxiv cs na\n1,arxiv cs mm\n2,arxiv cs lo\n",
    )
    # papers that are in no node come first and last, and the order is another
    papers = [("200971", "ontology", "unused"), *reversed(PAPERS), ("3", "last", "unused")]
    (tmp_path / "titleabs.tsv.gz").write_bytes(gzip.compress(tar(lines(papers))))
    return tmp_path


def read_arxiv(root: Path, **options: object) -> TextAttributedData:
    return attach_text(graph(), "ogbn-arxiv", root, **{"checksums": {}, **options})  # type: ignore[arg-type]


class TestArxiv:
    def test_every_node_gets_its_paper(self, arxiv: Path) -> None:
        data = graph()
        out = read_arxiv(arxiv)
        assert out.text == [f"{title}\n{abstract}" for _, title, abstract in PAPERS]
        assert out.class_names == ["Numerical Analysis", "Multimedia", "Logic in Computer Science"]
        assert out.y.tolist() == [0, 1, 2]
        assert data.y.shape == (3, 1)
        assert out.edge_index.equal(data.edge_index)

    @pytest.mark.parametrize("how", ["gzip of tar", "unzipped tar", "extracted", "zipped again", "header cut off"])
    def test_all_states_of_the_archive(self, arxiv: Path, how: str) -> None:
        path = arxiv / "titleabs.tsv.gz"
        inner = gzip.decompress(path.read_bytes())
        table = lines([("200971", "ontology", "unused"), *PAPERS]).encode()
        if how != "gzip of tar":
            path.unlink()
        raw = arxiv / "ogbn_arxiv" / "raw"
        raw.mkdir()
        if how == "unzipped tar":
            assert inner.startswith(b"titleabs.tsv\0")
            (raw / "titleabs.tsv").write_bytes(inner)
        elif how == "extracted":
            (raw / "titleabs.tsv").write_bytes(table)
        elif how == "zipped again":
            (raw / "titleabs.tsv.gz").write_bytes(gzip.compress(table))
        elif how == "header cut off":
            (raw / "titleabs.tsv").write_bytes(inner[512:])
        assert read_arxiv(arxiv, template="{abstract}").text == [abstract for _, _, abstract in PAPERS]

    def test_checksums(self, arxiv: Path) -> None:
        with pytest.raises(ValueError, match=r"titleabs.tsv.gz has SHA-256 \w{64}, expected 7bce99ab"):
            attach_text(graph(), "ogbn-arxiv", arxiv)
        digest = hashlib.sha256((arxiv / "titleabs.tsv.gz").read_bytes()).hexdigest()
        read_arxiv(arxiv, checksums={"titleabs.tsv.gz": digest.upper()})

    @pytest.mark.parametrize(
        ("file", "where"),
        [
            (NODES, "OGB downloads"),
            (LABELS, "OGB downloads"),
            ("titleabs.tsv.gz", "https://snap.stanford.edu/ogb/data/misc/ogbn_arxiv/titleabs.tsv.gz"),
        ],
    )
    def test_a_missing_file_is_named(self, arxiv: Path, file: str, where: str) -> None:
        (arxiv / file).unlink()
        with pytest.raises(FileNotFoundError, match=f"{Path(file).name}.* is missing in .*{re.escape(where)}"):
            read_arxiv(arxiv)

    def test_node_counts(self, arxiv: Path) -> None:
        with pytest.raises(ValueError, match=r"nodeidx2paperid.csv.gz lists 3 nodes but the graph has 4"):
            attach_text(graph(4), "ogbn-arxiv", arxiv, checksums={})

    def test_order(self, arxiv: Path) -> None:
        packed(
            arxiv / NODES,
            "node idx,paper id\n0,9657784\n2,116214155\n1,39886162\n",
        )
        with pytest.raises(ValueError, match=r"2 of 3 rows .* out of order; the first, row 1, is of node '2'"):
            read_arxiv(arxiv)

    def test_one_paper_of_two_nodes(self, arxiv: Path) -> None:
        packed(arxiv / NODES, "node idx,paper id\n0,9657784\n1,39886162\n2,9657784\n")
        with pytest.raises(ValueError, match=r"gives 1 ids to more than one node, the first is '9657784'"):
            read_arxiv(arxiv)

    def test_missing_papers(self, arxiv: Path) -> None:
        (arxiv / "titleabs.tsv.gz").write_bytes(gzip.compress(tar(lines([PAPERS[1]]))))
        with pytest.raises(ValueError, match=r"2 of 3 nodes .* have no text, 0 of them no id; .* id '9657784'"):
            read_arxiv(arxiv)
        assert read_arxiv(arxiv, missing="unknown", template="{title}").text == ["unknown", PAPERS[1][1], "unknown"]

    def test_two_texts_of_one_paper(self, arxiv: Path) -> None:
        twice = [*PAPERS, PAPERS[0], ("39886162", "another title", "…")]
        (arxiv / "titleabs.tsv.gz").write_bytes(gzip.compress(tar(lines(twice))))
        with pytest.raises(ValueError, match="two different texts of '39886162'"):
            read_arxiv(arxiv)
        (arxiv / "titleabs.tsv.gz").write_bytes(gzip.compress(tar(lines(twice[:-1]))))
        read_arxiv(arxiv)  # the same line twice is no contradiction

    def test_broken_line(self, arxiv: Path) -> None:
        text = lines(PAPERS) + "the rest of an abstract\n"
        (arxiv / "titleabs.tsv.gz").write_bytes(gzip.compress(text.encode()))
        with pytest.raises(ValueError, match=r"line 4: 'the rest of an abstract.*' is not a paper's id"):
            read_arxiv(arxiv)

    def test_template(self, arxiv: Path) -> None:
        with pytest.raises(ValueError, match="'template' asks for 'summary', the columns are 'title', 'abstract'"):
            read_arxiv(arxiv, template="{title}: {summary}")

    def test_more_classes_than_names(self, arxiv: Path) -> None:
        data = graph()
        data.y[2] = 5
        with pytest.raises(ValueError, match="'y' holds class 5 but only 3 classes have names"):
            attach_text(data, "ogbn-arxiv", arxiv, checksums={})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "ogbn_products"
    packed(folder / "mapping/nodeidx2asin.csv.gz", "node idx,asin\n0,0027133661\n1,B00004W4VF\n2,0060503130\n")
    packed(folder / "mapping/labelidx2productcategory.csv.gz",
           'label idx,product category\n0,"Patio, Lawn & Garden"\n1,\n2,Furniture & D&#233;cor\n')  # fmt: skip
    none = {"target_ind": [], "target_rel": []}
    rows = [
        {"uid": "B00004W4VF", "title": "Tom &amp; Jerry", "content": "line\none", **none},
        {"uid": "0027133661", "title": "A book", "content": "", **none},
        {"uid": "X", "title": "unused", "content": "x" * 300_000, **none},
    ]
    packed(folder / "Amazon-3M.raw/trn.json.gz", "".join(json.dumps(row) + "\n" for row in rows))
    last = {"uid": "0060503130", "title": "Chair", "content": "Wood.", "target_ind": [7], "target_rel": [1.0]}
    (folder / "Amazon-3M.raw" / "tst.json").write_text(json.dumps(last) + "\n")
    return tmp_path


def test_products(shop: Path) -> None:
    out = attach_text(graph(), "ogbn-products", shop)
    assert out.text == ["A book", "Tom & Jerry\nline\none", "Chair\nWood."]
    assert out.class_names == ["Patio, Lawn & Garden", "class 1", "Furniture & Décor"]
    (shop / "ogbn_products/Amazon-3M.raw/tst.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tst\.json.*XMLRepository"):
        attach_text(graph(), "ogbn-products", shop)
    packed(shop / "ogbn_products/Amazon-3M.raw/tst.json.gz", '{"uid": "0060503130", "title": "Chair"}\n')
    with pytest.raises(ValueError, match=r"tst.json.gz, line 1: .* has no 'uid', 'title' and 'content'"):
        attach_text(graph(), "ogbn-products", shop)


class TestPlanetoid:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        told = {"dataset": "Cora", "planetoid_index_to_paper_id": ["35", "40", ""]}
        (tmp_path / "cora_planetoid_to_paper_id.json").write_text(json.dumps(told))
        (tmp_path / "papers.csv").write_text('paper_id,title,abstract\n40,"B, b",Text b.\n35,A,"Text\na."\n99,C,c\n')
        return tmp_path

    def test_table(self, root: Path) -> None:
        out = attach_text(graph(), "Cora", root, table=root / "papers.csv", missing="no paper")
        assert out.text == ["A\nText\na.", "B, b\nText b.", "no paper"]
        with pytest.raises(ValueError, match=r"1 of 3 nodes of 'Cora' have no text, 1 of them no id; .* node 2"):
            attach_text(graph(), "Cora", root, table=root / "papers.csv")

    def test_kinds_of_tables(self, root: Path) -> None:
        (root / "papers.tsv").write_text("title\tid\nA\t35\nB\t40\n")
        out = attach_text(graph(), "Cora", root, table=root / "papers.tsv", key="id", missing="-")
        assert out.text == ["A", "B", "-"]
        packed(root / "papers.jsonl.gz", '{"id": 35, "title": "A"}\n{"id": 40, "title": "B"}\n')
        assert attach_text(graph(), "Cora", root, table=root / "papers.jsonl.gz", missing="-").text == out.text

    def test_bad_tables(self, root: Path) -> None:
        with pytest.raises(ValueError, match=r"'table' is missing; 'Cora' needs one .* such as '35'"):
            attach_text(graph(), "Cora", root)
        with pytest.raises(FileNotFoundError, match=r"nothing.csv .* column of ids such as '35'"):
            attach_text(graph(), "Cora", root, table=root / "nothing.csv")
        with pytest.raises(ValueError, match="no column 'pid', only 'paper_id', 'title', 'abstract'"):
            attach_text(graph(), "Cora", root, table=root / "papers.csv", key="pid")
        (root / "papers.csv").write_text("paper_id,title\n35,A,too much\n")
        with pytest.raises(ValueError, match="row 1 has more or fewer fields than the header"):
            attach_text(graph(), "Cora", root, table=root / "papers.csv")

    def test_bad_lists(self, root: Path) -> None:
        table, file = root / "papers.csv", root / "cora_planetoid_to_paper_id.json"
        file.write_text('{"planetoid_index_to_paper_id": ["35", "40", "35"]}')
        with pytest.raises(ValueError, match="gives 1 ids to more than one node, the first is '35'"):
            attach_text(graph(), "Cora", root, table=table)
        file.write_text('{"planetoid_index_to_paper_id": ["35"]}')
        with pytest.raises(ValueError, match="lists 1 nodes but the graph has 3"):
            attach_text(graph(), "Cora", root, table=table)


def test_tag_dataset(tmp_path: Path) -> None:
    """PyG's own class writes the file that is read."""
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    texts = ['a "quoted", text', "two\nlines", "x" * 200_000]

    class Some:
        name, num_classes, _data = "ogbn-mine", 3, graph()

    split = {"train": torch.tensor([0]), "valid": torch.tensor([1]), "test": torch.tensor([2])}
    TAGDataset(str(tmp_path), Some(), str(tmp_path / "tokenizer"), texts, split, text_on_disk=True)  # type: ignore[arg-type]
    assert pd.read_csv(tmp_path / "ogbn_mine" / "raw" / "node-text.csv.gz")["text"].tolist() == texts
    assert attach_text(graph(), "TAGDataset", tmp_path / "ogbn_mine").text == texts
    with pytest.raises(ValueError, match=r"node-text.csv.gz holds 3 texts but the graph has 4 nodes"):
        attach_text(graph(4), "TAGDataset", tmp_path / "ogbn_mine")
    packed(tmp_path / "node-text.csv.gz", 'text\na\n""\nc\n')
    with pytest.raises(ValueError, match=r"1 of 3 nodes of 'TAGDataset' have no text.*; first node 1, id '1'"):
        attach_text(graph(), "TAGDataset", tmp_path)
    assert attach_text(graph(), "TAGDataset", tmp_path, missing="?").text == ["a", "?", "c"]
    packed(tmp_path / "node-text.csv.gz", "words\na\nb\nc\n")
    with pytest.raises(ValueError, match="no column 'text', only 'words'"):
        attach_text(graph(), "TAGDataset", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"node-text.csv.gz.* is missing in .*TAGDataset downloads it"):
        attach_text(graph(), "TAGDataset", tmp_path / "nowhere")


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'name' is 'ogbn-mag', expected one of ogbn-arxiv, ogbn-products, Cora"):
        attach_text(graph(), "ogbn-mag", tmp_path)

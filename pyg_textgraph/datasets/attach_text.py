"""The texts of graphs that are published without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_geometric.data import Data

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import _published as published

# the file has not changed since 2020
KNOWN_SHA256: Mapping[str, str] = {
    "titleabs.tsv.gz": "7bce99ab3e1604277f12dd49f6e17a0d89867b29ea152f072c0e709ae0bc8ed7"
}
PLANETOID = ("Cora", "CiteSeer", "PubMed")
_FROM_OGB = "it is part of the data set that OGB downloads"
_FROM_SNAP = "it is published at https://snap.stanford.edu/ogb/data/misc/ogbn_arxiv/titleabs.tsv.gz"
_FROM_XC = (
    "the raw text of Amazon-3M is published at http://manikvarma.org/downloads/XC/XMLRepository.html; unpack it into "
    "the data set's folder"
)


@dataclass(frozen=True)
class Texts:
    """The id of every node, the columns of every id, and the classes' names where they are published."""

    ids: list[str]
    columns: dict[str, published.Columns]
    class_names: list[str] | None = None


@dataclass(frozen=True)
class Folders:
    """Where files are looked for, and what their digests have to be."""

    folders: Sequence[Path]
    checksums: Mapping[str, str]

    def find(self, names: Sequence[str], what: str, where: str) -> Path:
        path = published.locate(self.folders, names, what, where)
        published.check_sha256(path, self.checksums)
        return path


def attach_text(
    data: Data,
    name: str,
    root: str | Path,
    *,
    table: str | Path | None = None,
    key: str | None = None,
    template: str | None = None,
    missing: str = "error",
    checksums: Mapping[str, str] = KNOWN_SHA256,
) -> TextAttributedData:
    """A copy of a benchmark's graph with its nodes' texts, from local files in the formats they are published in.

    Files are looked for in **root** and in the data set's folder below it, ``ogbn_arxiv`` for ``"ogbn-arxiv"``:

    - ``"ogbn-arxiv"``: OGB's ``mapping/nodeidx2paperid.csv.gz`` and ``mapping/labelidx2arxivcategeory.csv.gz``, and
      ``titleabs.tsv.gz``. Columns ``title`` and ``abstract``.
    - ``"ogbn-products"``: OGB's ``mapping/nodeidx2asin.csv.gz`` and ``mapping/labelidx2productcategory.csv.gz``, and
      ``trn.json.gz`` and ``tst.json.gz`` in ``Amazon-3M.raw``. Columns ``title`` and ``content``.
    - ``"Cora"``, ``"CiteSeer"``, ``"PubMed"``: ``cora_planetoid_to_paper_id.json`` and so on, and a **table** of yours.
    - ``"TAGDataset"``: ``raw/node-text.csv.gz``, as PyG's ``TAGDataset`` keeps it. Column ``text``.

    Labels of shape (N, 1), as OGB has them, become (N,); OGB's names of the classes become ``class_names``. Every
    node's id has to be there once, in the nodes' order.

    Args:
        data: The graph, as PyG or OGB gives it.
        name: One of the names above.
        root: The folder given to OGB or PyG, or the data set's own.
        table: The papers of a Planetoid graph: ``.csv`` or ``.tsv`` with a header, or ``.jsonl``; gzip or plain.
        key: The table's column of ids, the first by default.
        template: A node's text, such as ``"{title}\\n{abstract}"``; by default all columns, one per line.
        missing: The text of a node without id or text; ``"error"`` refuses it. (25 nodes of Planetoid's Cora and 29 of
            CiteSeer have no known paper.)
        checksums: SHA-256 of files by name; others are not checked.

    Raises:
        FileNotFoundError: Naming the file and where it is published.
        ValueError: Naming the file and how much of it does not fit.
    """
    root = Path(root).expanduser()
    own = name.replace("-", "_")
    folders = [folder for folder in (root / own, root / f"{own}_pyg", root) if folder.is_dir()]
    files, num_nodes = Folders(folders or [root], checksums), int(data.num_nodes or 0)
    if name == "ogbn-arxiv":
        texts = _arxiv(files, num_nodes)
    elif name == "ogbn-products":
        texts = _products(files, num_nodes)
    elif name in PLANETOID:
        texts = _planetoid(files, num_nodes, name, table, key)
    elif name == "TAGDataset":
        texts = _tag_dataset(files, num_nodes)
    else:
        known = ", ".join(("ogbn-arxiv", "ogbn-products", *PLANETOID, "TAGDataset"))
        raise ValueError(f"attach_text: 'name' is {name!r}, expected one of {known}")

    out = TextAttributedData.from_data(data)
    out.num_nodes = num_nodes
    out.text = _written(texts, template, missing, name)
    y = out.get("y")
    if y is not None and y.dim() == 2 and y.size(1) == 1:
        y = out.y = y.view(-1)
    if texts.class_names is not None:
        if y is not None and y.numel() and int(y.max()) >= len(texts.class_names):
            names = len(texts.class_names)
            raise ValueError(f"attach_text: 'y' holds class {int(y.max())} but only {names} classes have names")
        out.class_names = texts.class_names
    out.validate()
    return out


def _arxiv(files: Folders, num_nodes: int) -> Texts:
    mapping = files.find(["mapping/nodeidx2paperid.csv.gz"], "the nodes' papers", _FROM_OGB)
    ids = published.node_ids(mapping, "paper id", num_nodes)
    # misspelt there
    labels = files.find(["mapping/labelidx2arxivcategeory.csv.gz"], "the classes' names", _FROM_OGB)
    names = [f"{folder}titleabs.tsv{end}" for folder in ("", "raw/", "mapping/") for end in (".gz", "")]
    path = files.find(names, "titles and abstracts", _FROM_SNAP)
    return Texts(
        ids,
        published.title_abstracts(path, set(ids)),
        published.class_names(labels, "arxiv category", published.arxiv_category),
    )


def _products(files: Folders, num_nodes: int) -> Texts:
    mapping = files.find(["mapping/nodeidx2asin.csv.gz"], "the nodes' products", _FROM_OGB)
    ids = published.node_ids(mapping, "asin", num_nodes)
    labels = files.find(["mapping/labelidx2productcategory.csv.gz"], "the classes' names", _FROM_OGB)
    paths = [
        files.find(
            [
                f"{folder}{part}.json{end}"
                for folder in ("Amazon-3M.raw/", "raw/Amazon-3M.raw/", "")
                for end in (".gz", "")
            ],
            "titles and descriptions",
            _FROM_XC,
        )
        for part in ("trn", "tst")
    ]
    return Texts(
        ids,
        published.products(paths, set(ids)),
        published.class_names(labels, "product category", published.product_category),
    )


def _planetoid(files: Folders, num_nodes: int, name: str, table: str | Path | None, key: str | None) -> Texts:
    where = 'it is a JSON file with "planetoid_index_to_paper_id", a list of one paper per node'
    mapping = files.find([f"{name.lower()}_planetoid_to_paper_id.json"], "the nodes' papers", where)
    ids = published.planetoid_ids(mapping, num_nodes)
    some = next(filter(None, ids), "")
    if table is None:
        raise ValueError(f"attach_text: 'table' is missing; {name!r} needs one with texts of papers such as {some!r}")
    path = Path(table).expanduser()
    where = f"'table' is yours, with a column of ids such as {some!r}"
    path = Folders([path.parent], files.checksums).find([path.name], "the papers' texts", where)
    return Texts(ids, published.table(path, key, set(filter(None, ids))))


def _tag_dataset(files: Folders, num_nodes: int) -> Texts:
    where = "PyG's TAGDataset downloads it, or writes it if text_on_disk=True"
    path = files.find(["raw/node-text.csv.gz", "node-text.csv.gz"], "the nodes' texts", where)
    rows = published.node_table(path, num_nodes)
    ids = [str(i) for i in range(num_nodes)]
    return Texts(ids, {i: {"text": row["text"]} for i, row in zip(ids, rows, strict=True)})


def _written(texts: Texts, template: str | None, missing: str, name: str) -> list[str]:
    out = [_text(texts.columns.get(node_id), template) for node_id in texts.ids]
    absent = [i for i, text in enumerate(out) if not text]
    if absent and missing == "error":
        without_id = sum(not texts.ids[i] for i in absent)
        raise ValueError(
            f"attach_text: {len(absent)} of {len(texts.ids)} nodes of {name!r} have no text, {without_id} of them no "
            f"id; first node {absent[0]}, id {texts.ids[absent[0]]!r}; pass missing='…' (any text) to go on without"
        )
    return [text or missing for text in out]


def _text(row: Mapping[str, str] | None, template: str | None) -> str:
    """A node's text, empty where there is none."""
    if row is None or not any(x.strip() for x in row.values()):
        return ""
    if template is None:
        return "\n".join(x.strip() for x in row.values() if x.strip())
    try:
        return template.format_map(row).strip()
    except KeyError as error:
        columns = ", ".join(map(repr, row))
        raise ValueError(f"attach_text: 'template' asks for {error}, the columns are {columns}") from error

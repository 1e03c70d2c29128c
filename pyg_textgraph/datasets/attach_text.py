"""The texts of graphs that are published without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter

from torch_geometric.data import Data

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import _published as published

Columns = published.Columns
# the archive has not changed since 2020
KNOWN_SHA256 = {"titleabs.tsv.gz": "7bce99ab3e1604277f12dd49f6e17a0d89867b29ea152f072c0e709ae0bc8ed7"}
_OGB = "it is part of the data set that OGB downloads"
_TITLEABS = "it is published at https://snap.stanford.edu/ogb/data/misc/ogbn_arxiv/titleabs.tsv.gz"
_AMAZON = (
    "Amazon-3M's raw text is published at http://manikvarma.org/downloads/XC/XMLRepository.html; unpack it into the "
    "data set's folder"
)
_PLANETOID = ("Cora", "CiteSeer", "PubMed")
_SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


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
    """A copy of a benchmark's graph with the texts of its nodes, from local files in the formats they are published in.

    | name | files, below **root** or its folder of the data set |
    |---|---|
    | ``"ogbn-arxiv"`` | ``mapping/nodeidx2paperid.csv.gz``, ``mapping/labelidx2arxivcategeory.csv.gz`` (OGB's), \
``titleabs.tsv.gz`` |
    | ``"ogbn-products"`` | ``mapping/nodeidx2asin.csv.gz``, ``mapping/labelidx2productcategory.csv.gz`` (OGB's), \
``Amazon-3M.raw/trn.json.gz`` and ``tst.json.gz`` |
    | ``"Cora"``, ``"CiteSeer"``, ``"PubMed"`` | ``<name>_planetoid_to_paper_id.json``, and your **table** of papers |
    | ``"TAGDataset"`` | ``raw/node-text.csv.gz``, as PyG's ``TAGDataset(root, …)`` keeps it |

    Labels of shape (N, 1), as OGB has them, become (N,), and OGB's names of the classes ``class_names``. Every id has to
    be found exactly once, for as many nodes as the graph has, in their order.

    Args:
        data: The graph, as PyG or OGB gives it.
        name: See above.
        root: The folder given to OGB, or the data set's own; of the other files, where they are.
        table: Papers of a Planetoid graph: ``.csv`` or ``.tsv`` with a header, or ``.jsonl``; gzip or plain.
        key: The table's column of ids, the first by default.
        template: A node's text, such as ``"{title}\\n{abstract}"``; by default all columns but the id, one per line.
        missing: The text of a node whose id or text is not there; ``"error"`` refuses it. (25 nodes of Planetoid's Cora
            and 29 of CiteSeer have no known paper.)
        checksums: SHA-256 of files by their names; those it does not name are not checked.

    Raises:
        FileNotFoundError: Naming the file and where it is published.
        ValueError: Naming the file and the count of what does not fit.
    """
    root = Path(root).expanduser()
    folders = [root / name.replace("-", "_"), root / f"{name.replace('-', '_')}_pyg", root]
    folders = [folder for folder in folders if folder.is_dir()] or [root]
    num_nodes = int(data.num_nodes or 0)
    names: list[str] | None = None
    ids: list[str] | None = None

    def find(files: Sequence[str], what: str, where: str) -> Path:
        path = published.locate(folders, files, what, where)
        published.check_sha256(path, checksums)
        return path

    if name == "ogbn-arxiv":
        ids = published.node_ids(find(["mapping/nodeidx2paperid.csv.gz"], "the nodes' papers", _OGB), "paper id", num_nodes)
        # the name is misspelt there
        labels = find(["mapping/labelidx2arxivcategeory.csv.gz"], "the classes' names", _OGB)
        names = published.class_names(labels, "arxiv category", published.arxiv_category)
        places = [f"{place}titleabs.tsv{end}" for place in ("", "raw/", "mapping/") for end in (".gz", "")]
        texts = find(places, "titles and abstracts", _TITLEABS)
        found = published.title_abstracts(texts, set(ids))
    elif name == "ogbn-products":
        ids = published.node_ids(find(["mapping/nodeidx2asin.csv.gz"], "the nodes' products", _OGB), "asin", num_nodes)
        labels = find(["mapping/labelidx2productcategory.csv.gz"], "the classes' names", _OGB)
        names = published.class_names(labels, "product category", published.product_category)
        parts = [[f"{place}{part}.json{end}" for place in ("Amazon-3M.raw/", "raw/Amazon-3M.raw/", "") for end in (".gz", "")]
                 for part in ("trn", "tst")]  # fmt: skip
        found = published.products([find(part, "titles and descriptions", _AMAZON) for part in parts], set(ids))
    elif name in _PLANETOID:
        lower = name.lower()
        where = "it is the list of a paper per node that comes with your table"
        ids = published.planetoid_ids(find([f"{lower}_planetoid_to_paper_id.json"], "the nodes' papers", where), num_nodes)
        if table is None:
            raise ValueError(f"attach_text: 'table' is missing; {name!r} needs a table of its papers' titles and abstracts")
        path = Path(table).expanduser()
        own = f"'table' is your own; its first column holds ids such as {next(filter(None, ids), '')!r}"
        papers = published.locate([path.parent], [path.name], "the table of papers", own)
        published.check_sha256(papers, checksums)
        found = published.table(papers, key, set(ids))
        for paper, columns in found.items():
            found[paper] = {column: x for column, x in columns.items() if x != paper or column not in (key, next(iter(columns)))}
    elif name == "TAGDataset":
        where = "PyG's TAGDataset downloads it, or writes it with text_on_disk=True"
        rows = published.node_table(find(["raw/node-text.csv.gz", "node-text.csv.gz"], "the texts", where), num_nodes)
        ids = [str(i) for i in range(num_nodes)]
        found = {i: {"text": row["text"]} for i, row in zip(ids, rows, strict=True)}
    else:
        known = ("ogbn-arxiv", "ogbn-products", *_PLANETOID, "TAGDataset")
        raise ValueError(f"attach_text: 'name' is {name!r}, expected one of {', '.join(known)}")

    out = TextAttributedData.from_data(data)
    out.text = _texts(ids, found, template, missing, name)
    if out.get("y") is not None and out.y.dim() == 2 and out.y.size(1) == 1:
        out.y = out.y.view(-1)
    if names is not None:
        if out.get("y") is not None and out.y.numel() and int(out.y.max()) >= len(names):
            raise ValueError(f"attach_text: 'y' holds class {int(out.y.max())} but {len(names)} classes have names")
        out.class_names = names
    out.validate()
    return out


def _texts(ids: list[str], found: dict[str, Columns], template: str | None, missing: str, name: str) -> list[str]:
    absent = [i for i, x in enumerate(ids) if x not in found]
    if absent and missing == "error":
        unknown = sum(not ids[i] for i in absent)
        raise ValueError(
            f"attach_text: {len(absent)} of the {len(ids)} nodes of {name!r} have no text ({unknown} of them no id), the "
            f"first is node {absent[0]} with id {ids[absent[0]]!r}; pass missing='…' (any text) to go on without"
        )
    if template is not None and found:
        columns = next(iter(found.values()))
        unknown_fields = [field for _, field, _, _ in Formatter().parse(template) if field and field not in columns]
        if unknown_fields:
            raise ValueError(
                f"attach_text: 'template' asks for {unknown_fields[0]!r}, the columns are {', '.join(map(repr, columns))}"
            )
    out = []
    for node_id in ids:
        row = found.get(node_id)
        if row is None:
            out.append(missing)
        elif template is None:
            out.append("\n".join(x.strip() for x in row.values() if x.strip()))
        else:
            out.append(template.format_map(row))
    return out

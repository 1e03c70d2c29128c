"""Text graphs from a relational database: rows are nodes, foreign keys are edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets.frames import Table


def from_tables(
    tables: Mapping[str, Any],
    keys: Mapping[str, str],
    *,
    text: Mapping[str, str | Sequence[str]] | None = None,
    label: str | None = None,
    class_names: Sequence[str] | None = None,
    split: str | None = None,
    relations: Mapping[str, str] | None = None,
) -> TextAttributedData:
    """A text graph whose nodes are the rows of all tables, one table after the other, in the order of **tables**.

    A node's text starts with its table's name, ``"visits: "``. The column to be predicted is in no row's text, and a
    key is only if **text** asks for it.

    - **text** N strings, **edge_index** (2, E) from a row to the row that its foreign key names, **text_edges** E names
    - **table** (N,) place of the node's table in **tables**
    - **y** (N,) with **class_names**; −1 in all other tables and where the label is missing
    - **train_mask**, **val_mask**, **test_mask** (N,), of rows with a label

    Args:
        tables: Data frames or dicts of columns, by name.
        keys: What each foreign key names, ``{"visits.patient": "patients.id"}``. A missing key is no edge, and neither
            is one that **label** or **split** names.
        text: Per table a column, a template such as ``"{name}, born {born}"``, or columns, which become
            ``column: value``; by default all columns that are no key and not **label** or **split**.
        label: The column to be predicted, ``"visits.department"``.
        class_names: The classes in their order; by default those that occur, sorted.
        split: A column of the label's table with ``train``, ``val`` or ``test``, ``"visits.split"``.
        relations: The edges' names by foreign key, the key's column by default.

    Raises:
        ValueError: If a text shows the label, a key is dangling or an id is there twice, naming table, column, count.
    """
    if not tables:
        raise ValueError("from_tables: 'tables' is empty, expected at least one")
    frames = {name: Table(table, "from_tables", name) for name, table in tables.items()}
    for argument, given in (("text", text), ("relations", relations)):
        allowed = frames if argument == "text" else keys
        unknown = next((name for name in given or () if name not in allowed), None)
        if unknown is not None:
            raise ValueError(f"from_tables: {argument!r} names {unknown!r}, expected one of {', '.join(allowed)}")
    start, num_nodes = {}, 0
    for name, frame in frames.items():
        start[name], num_nodes = num_nodes, num_nodes + len(frame)
    links = {key: (_split(key, frames), _split(named, frames)) for key, named in keys.items()}
    labelled = None if label is None else _split(label, frames)
    splitting = None if split is None else _split(split, frames)
    if splitting is not None and (labelled is None or splitting[0] != labelled[0]):
        raise ValueError(f"from_tables: 'split' is {split!r}, expected a column of the table of 'label' {label!r}")

    out = TextAttributedData(num_nodes=num_nodes)
    out.text = []
    hidden = {place for place in (labelled, splitting) if place is not None}
    keyed = {place for pair in links.values() for place in pair}
    for name, frame in frames.items():
        shown = [column for column in frame.columns if (name, column) not in keyed | hidden]
        own = (text or {}).get(name, shown)
        secret = [column for table, column in hidden if table == name]
        told = frame.texts(own, missing="", hidden=secret) if own else [""] * len(frame)
        out.text += [f"{name}: {x}".strip() if "\n" not in x else f"{name}:\n{x}" for x in told]
    ends, relation = [], []
    for key, ((table, column), (other, named)) in links.items():
        if (table, column) in hidden:
            continue
        number = frames[other].numbers(named)
        values = frames[table].column(column)
        rows = [i for i, x in enumerate(values) if x is not None]
        target = frames[table].ends(column, number, f"{other}.{named}", skip_missing=True)
        ends.append(torch.stack([torch.tensor(rows, dtype=torch.long) + start[table], target + start[other]]))
        relation += [(relations or {}).get(key, column)] * len(rows)
    out.edge_index = torch.cat(ends, 1) if ends else torch.empty(2, 0, dtype=torch.long)
    out.text_edges = relation
    out.table = torch.repeat_interleave(torch.arange(len(frames)), torch.tensor([len(x) for x in frames.values()]))
    if labelled is not None:
        table, column = labelled
        y, out.class_names = frames[table].classes(column, class_names)
        rows_of = slice(start[table], start[table] + len(y))
        out.y = torch.full((num_nodes,), -1)
        out.y[rows_of] = y
        if splitting is not None:
            for mask, chosen in frames[table].masks(splitting[1]).items():
                out[mask] = _of_rows(chosen & (y >= 0), rows_of, num_nodes)
    out.validate()
    return out


def _of_rows(values: Tensor, rows: slice, num_nodes: int) -> Tensor:
    out = torch.zeros(num_nodes, dtype=torch.bool)
    out[rows] = values
    return out


def _split(place: str, frames: Mapping[str, Table]) -> tuple[str, str]:
    """``"visits.patient"`` as table and column."""
    name, dot, column = place.partition(".")
    if not dot or name not in frames:
        raise ValueError(f"from_tables: {place!r} is no table.column; the tables are {', '.join(frames)}")
    if column not in frames[name].columns:
        have = ", ".join(frames[name].columns)
        raise ValueError(f"from_tables: {place!r}: the table {name!r} has no column {column!r}, only {have}")
    return name, column

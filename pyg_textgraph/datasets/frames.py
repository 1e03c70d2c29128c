"""Text graphs from tables of nodes and edges."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.data import TextAttributedData

SPLITS = {
    "train": "train_mask",
    "val": "val_mask",
    "valid": "val_mask",
    "validation": "val_mask",
    "test": "test_mask",
}
MASKS = ("train_mask", "val_mask", "test_mask")


def from_dataframes(
    nodes: Any,
    edges: Any,
    *,
    text: str | Sequence[str] = "text",
    id: str = "id",
    source: str = "source",
    target: str = "target",
    relation: str | None = None,
    label: str | None = None,
    class_names: Sequence[str] | None = None,
    split: str | None = None,
    missing: str = "error",
) -> TextAttributedData:
    r"""A text graph from a table of nodes and a table of edges: pandas, polars, Arrow, or a dict of columns.

    Node i is row i of **nodes**.

    - **text** N strings, **edge_index** (2, E) in the order of **edges**, **text_edges** E relations if they have some
    - **y** (N,) with **class_names**; −1 where the label is missing
    - **train_mask**, **val_mask**, **test_mask** (N,); a node without a split is in none

    Args:
        nodes: One row per node.
        edges: One row per edge.
        text: A column, a template such as ``"{title}. {abstract}"``, or several columns, which become lines
            ``column: value`` without the missing ones.
        id: The nodes' column of ids, unique.
        source: The edges' column of ids where they start.
        target: The edges' column of ids where they end.
        relation: The edges' column with the relation's name, for typed edges.
        label: The nodes' column with the class.
        class_names: The classes in their order; by default those that occur, sorted.
        split: The nodes' column with ``train``, ``val`` (or ``valid``, ``validation``) or ``test``.
        missing: Stands for a missing text; ``"error"`` refuses it.

    Raises:
        ValueError: Naming the column, how many of its values are wrong, and the first of them.
    """
    table = Table(nodes, "from_dataframes", "nodes")
    links = Table(edges, "from_dataframes", "edges")
    number = table.numbers(id)
    out = TextAttributedData(
        text=table.texts(text, missing, hidden=() if label is None else (label,)),
        edge_index=torch.stack([links.ends(end, number, f"nodes[{id!r}]") for end in (source, target)]),
        num_nodes=len(table),
    )
    if relation is not None:
        out.text_edges = [str(x) for x in links.complete(relation)]
    if label is not None:
        out.y, out.class_names = table.classes(label, class_names)
    if split is not None:
        out.update(table.masks(split))
    out.validate()
    return out


def from_csv(nodes: str | Path, edges: str | Path, *, delimiter: str = ",", **options: Any) -> TextAttributedData:
    """A text graph from two files with headers, gzip or plain, UTF-8. An empty field is a missing value.

    Args:
        nodes: One row per node.
        edges: One row per edge.
        delimiter: Between fields.
        **options: Of :func:`from_dataframes`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: As :func:`from_dataframes`, or naming the file and row that is malformed.
    """
    return from_dataframes(read_csv(nodes, delimiter), read_csv(edges, delimiter), **options)


def read_csv(path: str | Path, delimiter: str = ",") -> dict[str, list[str | None]]:
    """The columns of a file with a header; empty fields are None.

    Raises:
        ValueError: Naming the row that has more or fewer fields than the header, or a column that is there twice.
    """
    path = Path(path).expanduser()
    limit = csv.field_size_limit(1 << 30)  # texts may be longer than csv's 128 KiB
    try:
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, [])
            if len(set(header)) != len(header) or not header:
                raise ValueError(f"read_csv: {path.name} has the columns {header}, expected different names")
            rows: list[list[str | None]] = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ValueError(
                        f"read_csv: {path.name}, line {reader.line_num} has {len(row)} fields, the header {len(header)}"
                    )
                rows.append([x or None for x in row])
    except csv.Error as error:
        raise ValueError(f"read_csv: {path.name}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {name: list(column) for name, column in zip(header, columns, strict=True)}


class Table:
    """The columns of any table as lists, and what a graph is made of them.

    Args:
        table: pandas, polars, Arrow, or a mapping of columns.
        caller: The function that errors name.
        name: The argument that errors name.

    Raises:
        TypeError: If it is no table.
        ValueError: If columns differ in length.
    """

    def __init__(self, table: Any, caller: str, name: str) -> None:
        self.caller, self.name, self._table = caller, name, table
        if isinstance(table, Mapping):
            self.columns = list(table)
        elif hasattr(table, "column_names"):
            self.columns = list(table.column_names)
        elif hasattr(table, "columns"):
            self.columns = list(table.columns)
        else:
            kind = type(table).__name__
            raise TypeError(f"{caller}: {name!r} is {kind}, expected a data frame or a dict of columns")
        sizes = {column: len(table[column]) for column in self.columns}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"{caller}: the columns of {name!r} differ in length: {sizes}")
        self._len = next(iter(sizes.values()), 0)

    def __len__(self) -> int:
        return self._len

    def column(self, name: str) -> list[Any]:
        """A column's values, None where one is missing."""
        if name not in self.columns:
            have = ", ".join(map(repr, self.columns))
            raise ValueError(f"{self.caller}: {self.name!r} has no column {name!r}, only {have}")
        values = self._table[name]
        to_list = next((getattr(values, f) for f in ("to_pylist", "tolist", "to_list") if hasattr(values, f)), None)
        return [None if is_missing(x) else x for x in (to_list() if to_list is not None else values)]

    def complete(self, name: str) -> list[Any]:
        """A column without missing values."""
        values = self.column(name)
        self._refuse([i for i, x in enumerate(values) if x is None], values, f"{name!r} is missing")
        return values

    def numbers(self, name: str) -> dict[Any, int]:
        """The row of every id."""
        values = self.complete(name)
        number: dict[Any, int] = {}
        twice = [i for i, x in enumerate(values) if number.setdefault(x, i) != i]
        self._refuse(twice, values, f"{name!r} is there already")
        return number

    def ends(self, name: str, number: Mapping[Any, int], where: str, skip_missing: bool = False) -> Tensor:
        """The nodes that a column of ids stands for. Shapes: **returns** (rows,), or fewer where some are missing"""
        values = self.column(name) if skip_missing else self.complete(name)
        unknown = [i for i, x in enumerate(values) if x is not None and x not in number]
        self._refuse(unknown, values, f"{name!r} is not in {where}", number)
        return torch.tensor([number[x] for x in values if x is not None], dtype=torch.long)

    def texts(self, text: str | Sequence[str], missing: str = "error", hidden: Sequence[str] = ()) -> list[str]:
        """One text per row.

        Args:
            text: A column, a template, or several columns.
            missing: Stands for a text without any value; ``"error"`` refuses it.
            hidden: Columns that must not be in a text: the labels.
        """
        if isinstance(text, str):
            fields = [field for _, field, _, _ in Formatter().parse(text) if field] or [text]
        else:
            fields = list(text)
        told = next((column for column in hidden if column in fields), None)
        if told is not None:
            raise ValueError(f"{self.caller}: the text of {self.name!r} has the label {told!r} in it")
        columns = [self.column(field) for field in fields]
        if isinstance(text, str) and fields == [text]:
            out = columns[0]
        elif isinstance(text, str):
            # a template with nothing to say is a missing text, one with gaps is not
            rows = zip(*columns, strict=True)
            out = [
                None if all(x is None for x in row) else text.format(**_blank(dict(zip(fields, row, strict=True))))
                for row in rows
            ]
        else:
            out = [
                "\n".join(f"{field}: {x}" for field, x in zip(fields, row, strict=True) if x is not None) or None
                for row in (zip(*columns, strict=True) if columns else [()] * len(self))
            ]
        if missing == "error":
            absent = [i for i, x in enumerate(out) if x is None or not str(x).strip()]
            self._refuse(
                absent, out, f"the text {text!r} is missing", hint="; pass missing='…' (any text) to fill them in"
            )
        return [missing if x is None or not str(x).strip() else str(x) for x in out]

    def classes(self, name: str, class_names: Sequence[str] | None = None) -> tuple[Tensor, list[str]]:
        """A column as classes, −1 where it is missing. Shapes: **returns** (rows,) and C names"""
        values = [None if x is None else _plain(x) for x in self.column(name)]
        given = {x for x in values if x is not None}
        names = list(class_names) if class_names is not None else sorted(given, key=_in_order)
        index = {x: i for i, x in enumerate(names)}
        self._refuse([i for i, x in enumerate(values) if x not in index and x is not None], values,
                     f"{name!r} is none of the {len(names)} 'class_names'")  # fmt: skip
        return torch.tensor([-1 if x is None else index[x] for x in values], dtype=torch.long), names

    def masks(self, name: str) -> dict[str, Tensor]:
        """A column of split names as masks. Shapes: (rows,) each"""
        values = [None if x is None else str(x).lower() for x in self.column(name)]
        wrong = [i for i, x in enumerate(values) if x is not None and x not in SPLITS]
        self._refuse(wrong, values, f"{name!r} is none of {', '.join(SPLITS)}")
        return {mask: torch.tensor([SPLITS.get(x or "") == mask for x in values], dtype=torch.bool) for mask in MASKS}

    def _refuse(
        self,
        rows: Sequence[int],
        values: Sequence[Any],
        what: str,
        known: Mapping[Any, int] | None = None,
        hint: str = "",
    ) -> None:
        if not rows:
            return
        first = values[rows[0]]
        if known and not hint and type(first) is not type(next(iter(known))):
            hint = f"; ids there are {type(next(iter(known))).__name__}, this is {type(first).__name__}"
        raise ValueError(
            f"{self.caller}: in {len(rows)} of {len(values)} rows of {self.name!r}, {what}; first row {rows[0]}, "
            f"{first!r}{hint}"
        )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def _blank(row: dict[str, Any]) -> dict[str, Any]:
    return {field: "" if x is None else x for field, x in row.items()}


def _plain(value: Any) -> str:
    """A class's name; a column of integers with gaps comes as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _in_order(name: str) -> tuple[float, str]:
    """Numbers by value, words after them."""
    try:
        return float(name), name
    except ValueError:
        return math.inf, name

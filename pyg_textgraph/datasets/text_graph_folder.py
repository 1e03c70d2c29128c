"""Text-attributed graphs from a folder of three plain files."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch
from torch_geometric.data import InMemoryDataset

from pyg_textgraph.data import TextAttributedData


class TextGraphFolder(InMemoryDataset):
    """A graph read from ``nodes.jsonl``, ``edges.csv`` and, where there are classes, ``classes.json``; gzip or plain.

    One line of ``nodes.jsonl`` is one node, ``{"id": 0, "text": "…", "label": 2}``, ids counting from 0; ``label`` may
    be missing or null, which is class −1. A line of ``edges.csv`` is ``from,to`` or ``from,to,relation``, without a
    header.

    - **text** N strings, **y** (N,) with **class_names**, **edge_index** (2, E), **text_edges** E names of relations

    Args:
        root: The folder.
        transform: Applied at every access.

    Raises:
        FileNotFoundError: Naming the file that is missing.
        ValueError: Naming the file and line that is malformed.
    """

    def __init__(self, root: str | Path, transform: Callable[[Any], Any] | None = None) -> None:
        super().__init__(None, transform)
        folder = Path(root).expanduser()
        path = folder / "nodes.jsonl"
        nodes = _nodes(path)
        edges, relations = _edges(folder / "edges.csv")
        out = TextAttributedData(
            text=[node["text"] for node in nodes],
            edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).T.contiguous(),
        )
        if relations:
            out.text_edges = relations
        labels = [node.get("label") for node in nodes]
        if any(label is not None for label in labels):
            out.class_names = _class_names(folder / "classes.json")
            size = len(out.class_names)
            for number, label in enumerate(labels, 1):
                if label is not None and not (type(label) is int and 0 <= label < size):
                    raise ValueError(f"{path.name}, line {number}: 'label' is {label!r}, expected 0 to {size - 1}")
            out.y = torch.tensor([-1 if label is None else label for label in labels])
        out.validate()
        self.data = out


def _class_names(path: Path) -> list[str]:
    with _open(path) as file:
        try:
            names: list[str] = json.load(file)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path.name} holds {str(names)[:40]}, expected a list of names")
    return names


def _nodes(path: Path) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = []
    with _open(path) as file:
        for number, line in enumerate(_lines(file, path), 1):
            try:
                node = json.loads(line)
                good = node["id"] == len(nodes) and isinstance(node["text"], str)
            except (ValueError, KeyError, TypeError):
                good = False
            if not good:
                raise ValueError(f"{path.name}, line {number}: expected a node with 'id' {len(nodes)} and a 'text'")
            nodes.append(node)
    return nodes


def _edges(path: Path) -> tuple[list[tuple[int, int]], list[str]]:
    edges: list[tuple[int, int]] = []
    relations: list[str] = []
    with _open(path) as file:
        for number, row in enumerate(csv.reader(_lines(file, path)), 1):
            try:
                edges.append((int(row[0]), int(row[1])))
                relations.extend(row[2:3])
            except (ValueError, IndexError):
                raise ValueError(
                    f"{path.name}, line {number}: {row} is no edge, expected from,to or from,to,relation"
                ) from None
    if relations and len(relations) != len(edges):
        raise ValueError(f"{path.name}: {len(relations)} of {len(edges)} edges have a relation, expected all or none")
    return edges, relations


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    try:
        yield from file
    except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:  # not UTF-8, or a cut .gz
        raise ValueError(f"{path.name} is damaged: {error}") from None


def _open(path: Path) -> TextIO:
    packed = path.with_name(path.name + ".gz")
    if packed.is_file():
        return gzip.open(packed, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")

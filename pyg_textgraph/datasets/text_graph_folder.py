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
    be missing. A line of ``edges.csv`` is ``from,to`` or ``from,to,relation``, without a header.

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
        nodes = _nodes(folder / "nodes.jsonl")
        edges, relations = _edges(folder / "edges.csv")
        out = TextAttributedData(
            text=[node["text"] for node in nodes],
            edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).T.contiguous(),
        )
        if relations:
            out.text_edges = relations
        if nodes and all("label" in node for node in nodes):
            out.y = torch.tensor([node["label"] for node in nodes])
            with _open(folder / "classes.json") as file:
                try:
                    out.class_names = json.load(file)
                except (ValueError, EOFError) as error:
                    raise ValueError(f"classes.json is damaged: {error}") from None
        out.validate()
        self.data = out


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

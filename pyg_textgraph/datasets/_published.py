"""Readers of the files in which texts of benchmark graphs are published."""

from __future__ import annotations

import csv
import gzip
import hashlib
import html
import io
import json
import tarfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Columns = dict[str, str]
ARXIV = {
    "AI": "Artificial Intelligence", "AR": "Hardware Architecture", "CC": "Computational Complexity",
    "CE": "Computational Engineering, Finance, and Science", "CG": "Computational Geometry",
    "CL": "Computation and Language", "CR": "Cryptography and Security",
    "CV": "Computer Vision and Pattern Recognition", "CY": "Computers and Society", "DB": "Databases",
    "DC": "Distributed, Parallel, and Cluster Computing", "DL": "Digital Libraries", "DM": "Discrete Mathematics",
    "DS": "Data Structures and Algorithms", "ET": "Emerging Technologies",
    "FL": "Formal Languages and Automata Theory", "GL": "General Literature", "GR": "Graphics",
    "GT": "Computer Science and Game Theory", "HC": "Human-Computer Interaction", "IR": "Information Retrieval",
    "IT": "Information Theory", "LG": "Machine Learning", "LO": "Logic in Computer Science",
    "MA": "Multiagent Systems", "MM": "Multimedia", "MS": "Mathematical Software", "NA": "Numerical Analysis",
    "NE": "Neural and Evolutionary Computing", "NI": "Networking and Internet Architecture",
    "OH": "Other Computer Science", "OS": "Operating Systems", "PF": "Performance", "PL": "Programming Languages",
    "RO": "Robotics", "SC": "Symbolic Computation", "SD": "Sound", "SE": "Software Engineering",
    "SI": "Social and Information Networks", "SY": "Systems and Control",
}  # fmt: skip


def locate(folders: Sequence[Path], names: Sequence[str], what: str, where: str) -> Path:
    """The first of some file names that is in one of the folders.

    Raises:
        FileNotFoundError: Naming the file, the folders, and where it is published.
    """
    found = next((path for folder in folders for name in names if (path := folder / name).is_file()), None)
    if found is None:
        places = ", ".join(dict.fromkeys(map(str, folders)))
        raise FileNotFoundError(f"attach_text: {' or '.join(names)} ({what}) is missing in {places}; {where}")
    return found


def check_sha256(path: Path, expected: Mapping[str, str]) -> None:
    """Compares a file with the digest of its name, if there is one.

    Raises:
        ValueError: If they differ, naming both.
    """
    if path.name not in expected:
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected[path.name].lower():
        raise ValueError(
            f"attach_text: {path} has SHA-256 {digest.hexdigest()}, expected {expected[path.name]}; the file is "
            "incomplete or another version (checksums={} reads it all the same)"
        )


def node_ids(path: Path, column: str, num_nodes: int) -> list[str]:
    """The published id of every node, from an OGB file of ``node idx`` and one more column.

    Raises:
        ValueError: If a column or a node is missing, rows are out of order, or an id is there twice.
    """
    rows = _two_columns(path, "node idx", column)
    if len(rows) != num_nodes:
        raise ValueError(f"attach_text: {path.name} lists {len(rows)} nodes but the graph has {num_nodes}")
    misplaced = [i for i, (index, _) in enumerate(rows) if index != str(i)]
    if misplaced:
        first = misplaced[0]
        raise ValueError(
            f"attach_text: {len(misplaced)} of {num_nodes} rows of {path.name} are out of order; the first, row "
            f"{first}, is of node {rows[first][0]!r}"
        )
    ids = [name for _, name in rows]
    refuse_repeats(ids, path.name)
    return ids


def refuse_repeats(ids: Sequence[str], file: str) -> None:
    named = [x for x in ids if x]
    if len(set(named)) != len(named):
        seen: set[str] = set()
        first = next(x for x in named if x in seen or seen.add(x))  # type: ignore[func-returns-value]
        raise ValueError(
            f"attach_text: {file} gives {len(named) - len(set(named))} ids to more than one node, the first is "
            f"{first!r}"
        )


def class_names(path: Path, column: str, tidy: Callable[[int, str], str]) -> list[str]:
    """The names of all classes, from an OGB file of ``label idx`` and one more column."""
    rows = _two_columns(path, "label idx", column)
    if [index for index, _ in rows] != [str(i) for i in range(len(rows))]:
        raise ValueError(f"attach_text: the labels of {path.name} are not 0, 1, …, {len(rows) - 1} in this order")
    return [tidy(i, name) for i, (_, name) in enumerate(rows)]


def arxiv_category(index: int, name: str) -> str:
    """``"arxiv cs na"`` is Numerical Analysis."""
    return ARXIV.get(name.split()[-1].upper(), name) if name.strip() else f"class {index}"


def product_category(index: int, name: str) -> str:
    """Character references resolved; one published name is empty."""
    return html.unescape(name).strip() or f"class {index}"


def title_abstracts(path: Path, needed: Container[str]) -> dict[str, Columns]:
    """OGB's ``titleabs.tsv``, one line a paper: id, title and abstract.

    The published ``.gz`` holds a tar archive, so that unzipping alone leaves a header before the first id; both are
    understood, and so is the extracted table.

    Raises:
        ValueError: If a line has no id: it would be the rest of an abstract.
    """
    out: dict[str, Columns] = {}
    with _lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip("\0 \t\r\n"):  # zeros end a tar archive whose header was cut off by hand
                continue
            paper, *rest = line.rstrip("\r\n").split("\t", 2)
            if not paper.strip().isdigit() or not rest:
                raise ValueError(
                    f"attach_text: {path.name}, line {number}: {line[:40]!r} is not a paper's id, title and abstract"
                )
            if paper.strip() in needed:
                _put(out, paper.strip(), dict(zip(("title", "abstract"), [*rest, ""], strict=False)), path.name)
    return out


def products(paths: Iterable[Path], needed: Container[str]) -> dict[str, Columns]:
    """Amazon-3M's ``trn.json`` and ``tst.json``, one object a line: ``uid``, ``title`` and ``content``."""
    out: dict[str, Columns] = {}
    for path in paths:
        with _lines(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    name, columns = (
                        str(row["uid"]),
                        {key: html.unescape(row[key] or "") for key in ("title", "content")},
                    )
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(
                        f"attach_text: {path.name}, line {number}: {line[:40]!r} has no 'uid', 'title' and 'content'"
                    ) from error
                if name in needed:
                    _put(out, name, columns, path.name)
    return out


def table(path: Path, key: str | None, needed: Container[str]) -> dict[str, Columns]:
    """A user's table with a header, ``.csv`` or ``.tsv``, or one JSON object a line, ``.jsonl``; gzip or plain.

    The column of ids (**key**, the first by default) is not among the columns returned.

    Raises:
        ValueError: If the key column is missing or a row is malformed.
    """
    out: dict[str, Columns] = {}
    for number, row in _rows(path):
        name = key if key is not None else next(iter(row))
        if name not in row:
            raise ValueError(f"attach_text: {path.name} has no column {name!r}, only {', '.join(map(repr, row))}")
        if None in row or None in row.values():
            raise ValueError(f"attach_text: {path.name}, row {number} has more or fewer fields than the header")
        if (node := str(row[name])) in needed:
            _put(out, node, {column: str(value) for column, value in row.items() if column != name}, path.name)
    return out


def node_table(path: Path, num_nodes: int) -> list[Columns]:
    """PyG's ``node-text.csv.gz``: a header with ``text``, then one row per node.

    Raises:
        ValueError: If the column or a node is missing.
    """
    rows = [{column: str(value) for column, value in row.items()} for _, row in _rows(path)]
    if rows and "text" not in rows[0]:
        raise ValueError(f"attach_text: {path.name} has no column 'text', only {', '.join(map(repr, rows[0]))}")
    if len(rows) != num_nodes:
        raise ValueError(f"attach_text: {path.name} holds {len(rows)} texts but the graph has {num_nodes} nodes")
    return rows


def planetoid_ids(path: Path, num_nodes: int) -> list[str]:
    """The paper of every node, ``""`` where it is not known."""
    told = json.loads(path.read_text())
    ids = told.get("planetoid_index_to_paper_id") if isinstance(told, dict) else told
    if not isinstance(ids, list):
        raise ValueError(f"attach_text: {path.name} has no list 'planetoid_index_to_paper_id'")
    if len(ids) != num_nodes:
        raise ValueError(f"attach_text: {path.name} lists {len(ids)} nodes but the graph has {num_nodes}")
    ids = ["" if x is None else str(x) for x in ids]
    refuse_repeats(ids, path.name)
    return ids


def _put(out: dict[str, Columns], name: str, columns: Columns, file: str) -> None:
    if out.setdefault(name, columns) != columns:
        raise ValueError(f"attach_text: {file} holds two different texts of {name!r}")


def _two_columns(path: Path, first: str, second: str) -> list[tuple[str, str]]:
    out = []
    for number, row in _rows(path):
        if first not in row or second not in row:
            have = ", ".join(map(repr, row))
            raise ValueError(f"attach_text: {path.name} has columns {have}, expected {first!r} and {second!r}")
        if None in row.values():
            raise ValueError(f"attach_text: {path.name}, row {number} has fewer fields than the header")
        out.append((str(row[first]).strip(), str(row[second]).strip()))
    return out


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table with a header, numbered from 1."""
    kind = next((end for end in path.suffixes[::-1] if end != ".gz"), "")
    limit = csv.field_size_limit(1 << 30)  # a description may be longer than csv's 128 KiB
    try:
        with _lines(path) as lines:
            if kind == ".jsonl":
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield number, {key: "" if x is None else x for key, x in json.loads(line).items()}
            else:
                yield from enumerate(csv.DictReader(lines, delimiter="\t" if kind == ".tsv" else ","), 1)
    finally:
        csv.field_size_limit(limit)


@contextmanager
def _lines(path: Path) -> Iterator[Iterable[str]]:
    """The lines of a text file, or of the only file in a tar archive; gzip or plain."""
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isfile()]
            if len(members) != 1:
                raise ValueError(f"attach_text: {path.name} is an archive of {len(members)} files, expected one")
            file = archive.extractfile(members[0])
            assert file is not None
            yield _text(file)
        return
    with open(path, "rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if packed:
            with gzip.open(plain) as unpacked:
                yield _text(unpacked)
        else:
            yield _text(plain)


def _text(file: Any) -> Iterable[str]:
    # only "\n" ends a line of titleabs.tsv; the csv module takes care of its own
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")

"""WordNet database files (format: ``man 5WN wndb``) as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np

from pyg_textgraph.atomic import saving_file
from pyg_textgraph.sampling.csr import Array, Ints

FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
_NOUNS = ("Tops", "act", "animal", "artifact", "attribute", "body", "cognition", "communication", "event", "feeling",
          "food", "group", "location", "motive", "object", "person", "phenomenon", "plant", "possession", "process",
          "quantity", "relation", "shape", "state", "substance", "time")  # fmt: skip
_VERBS = ("body", "change", "cognition", "communication", "competition", "consumption", "contact", "creation",
          "emotion", "motion", "perception", "possession", "social", "stative", "weather")  # fmt: skip
LEXICOGRAPHER_FILES = (
    *("adj.all", "adj.pert", "adv.all"),
    *(f"noun.{name}" for name in _NOUNS),
    *(f"verb.{name}" for name in _VERBS),
    "adj.ppl",
)
POINTERS = {
    "!": "antonym",
    "@": "hypernym",
    "@i": "instance hypernym",
    "~": "hyponym",
    "~i": "instance hyponym",
    "#m": "member holonym",
    "#s": "substance holonym",
    "#p": "part holonym",
    "%m": "member meronym",
    "%s": "substance meronym",
    "%p": "part meronym",
    "=": "attribute",
    "+": "derivationally related form",
    ";c": "topic domain",
    "-c": "in topic domain",
    ";r": "region domain",
    "-r": "in region domain",
    ";u": "usage domain",
    "-u": "in usage domain",
    "*": "entailment",
    ">": "cause",
    "^": "also see",
    "$": "verb group",
    "&": "similar to",
    "<": "participle of",
    "\\": "pertainym",
}
_DIGIT = {pos: digit * 10**8 for digit, pos in enumerate(FILES, start=1)}
_SYMBOL = {symbol: i for i, symbol in enumerate(POINTERS)}


@dataclass(frozen=True, eq=False)
class Synsets:
    """Synsets and the pointers between them.

    Shapes:
        - **text** N strings, "lemma, lemma: gloss"
        - **synset** (N,) WordNet's ids, ascending: 10⁸ · part of speech (1 noun, 2 verb, 3 adj, 4 adv) + offset
        - **lexicographer** (N,) index into ``LEXICOGRAPHER_FILES``
        - **edge_index** (2, E), **edge_type** (E,) index into ``POINTERS``; distinct, sorted by (from, to, type)
    """

    text: list[str]
    synset: Ints
    lexicographer: Array
    edge_index: Array
    edge_type: Array

    @classmethod
    def from_folder(cls, folder: str | Path) -> Self:
        """Reads the four files ``data.*``.

        Raises:
            FileNotFoundError: Naming the first missing file.
            ValueError: Naming the file and line that is malformed or points at a synset that is not there.
        """
        text: list[str] = []
        number: dict[int, int] = {}  # id -> node
        lexicographer: list[int] = []
        pointers: list[tuple[int, int, int]] = []  # node, id pointed at, type
        where: list[str] = []
        for pos in FILES:
            for place, line in _lines(Path(folder), pos):
                try:
                    synset, lex, words, pointed = _parse(line, pos)
                except (ValueError, IndexError, KeyError) as error:
                    raise ValueError(f"WordNet: {place} is not a synset of WordNet 3.0: {line[:60]!r}") from error
                pointers += ((len(text), *pointer) for pointer in pointed)
                where.append(place)
                number[synset] = len(text)
                lexicographer.append(lex)
                text.append(words)
        for node, synset, _ in pointers:
            if synset not in number:
                raise ValueError(f"WordNet: {where[node]} points at synset {synset}, which the files do not hold")
        edges = np.array([(node, number[synset], kind) for node, synset, kind in pointers]).reshape(-1, 3)
        edges = np.unique(edges, axis=0)  # several words of one synset may point at the same other one
        return cls(text, np.array(list(number)), np.array(lexicographer), edges[:, :2].T, edges[:, 2])

    def verbs(self) -> Self:
        """The verb synsets and the pointers between two of them."""
        verb = self.synset // 10**8 == 2
        place = np.cumsum(verb) - 1
        inside = verb[self.edge_index].all(0)
        return type(self)(
            [text for text, kept in zip(self.text, verb, strict=True) if kept],
            self.synset[verb],
            self.lexicographer[verb],
            place[self.edge_index[:, inside]],
            self.edge_type[inside],
        )

    def save(self, path: str | Path) -> None:
        """Writes a compressed ``.npz`` without pickles."""
        with saving_file(path) as part:
            np.savez_compressed(
                part,
                text=np.frombuffer("\n".join(self.text).encode(), np.uint8),
                synset=self.synset.astype(np.int32),
                lexicographer=self.lexicographer.astype(np.uint8),
                edge_index=self.edge_index.astype(np.int32),
                edge_type=self.edge_type.astype(np.uint8),
            )

    @classmethod
    def load(cls, file: IO[bytes] | str | Path) -> Self:
        """Reads what :meth:`save` wrote."""
        with np.load(file) as saved:
            arrays = {key: saved[key] for key in saved.files}
        text = arrays.pop("text").tobytes().decode().split("\n")
        return cls(text, **{key: value.astype(np.int64) for key, value in arrays.items()})


def _lines(folder: Path, pos: str) -> Iterator[tuple[str, str]]:
    path = folder / FILES[pos]
    if not path.is_file():
        raise FileNotFoundError(
            f"WordNet: {path} is missing; 'root' must hold {', '.join(FILES.values())} of WordNet 3.0 "
            "(Debian's package wordnet-base has them in /usr/share/wordnet)"
        )
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.startswith(" ") and line.strip():  # the licence at the top is indented
                yield f"{path.name} line {number}", line


def _parse(line: str, pos: str) -> tuple[int, int, str, list[tuple[int, int]]]:
    """A synset's id, lexicographer file, text, and (id, type) of what it points at."""
    head, gloss = line.split("|", 1)
    field = head.split()
    lexicographer, num_words = int(field[1]), int(field[3], 16)
    if lexicographer >= len(LEXICOGRAPHER_FILES):
        raise ValueError(f"lexicographer file {lexicographer}")
    # "afloat(p)": adjectives may carry where they stand
    words = [word.split("(")[0].replace("_", " ") for word in field[4 : 4 + 2 * num_words : 2]]
    start = 5 + 2 * num_words
    quads = [field[i : i + 4] for i in range(start, start + 4 * int(field[start - 1]), 4)]
    pointed = [(_DIGIT[to] + int(offset), _SYMBOL[symbol]) for symbol, offset, to, _ in quads]
    return _DIGIT[pos] + int(field[0]), lexicographer, f"{', '.join(words)}: {gloss.strip()}", pointed

"""WordNet as text-attributed graphs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets._synsets import LEXICOGRAPHER_FILES, POINTERS, Synsets
from pyg_textgraph.sampling.ego import splitmix64


class WordNet(InMemoryDataset):
    """All 117,659 synsets of WordNet 3.0 and their pointers, read from a folder with the database files.

    Nodes are synsets in the files' order, nouns, verbs, adjectives, adverbs. A node's text is its lemmas and its gloss;
    its class is the lexicographer file it comes from, which the text does not name.

    - **text** N strings, **y** (N,), **class_names** 45 such as ``"noun animal"``
    - **edge_index**, **edge_type** (E,) index into ``relation_names``, **text_edges** E names such as ``"hypernym"``
    - **train_mask**, **val_mask**, **test_mask** (N,): 60, 20 and 20 %, fixed: nodes in the order of
      :func:`splitmix64(0, node) <pyg_textgraph.sampling.ego.splitmix64>`
    - **synset** (N,) WordNet's id: 10⁸ · part of speech (1 noun, 2 verb, 3 adjective, 4 adverb) + offset

    Args:
        root: A folder with ``data.noun``, ``data.verb``, ``data.adj`` and ``data.adv``.
        transform: Applied at every access.

    Raises:
        FileNotFoundError: Naming the file that is missing.
        ValueError: Naming the file and line that is malformed.
    """

    relation_names = tuple(POINTERS.values())

    def __init__(self, root: str | Path, transform: Callable[[Any], Any] | None = None) -> None:
        super().__init__(None, transform)
        self.data = _graph(
            Synsets.from_folder(Path(root).expanduser()), [name.replace(".", " ") for name in LEXICOGRAPHER_FILES]
        )


class WordNetVerbs(InMemoryDataset):
    """The 13,767 verb synsets of WordNet 3.0 and the 30,407 pointers between them; comes with the package.

    The verbs of :class:`WordNet`, with a split of their own and 15 classes named by words: ``"motion"``, ``"weather"``.
    WordNet's licence is beside the data, in ``datasets/raw/WORDNET-LICENSE``.

    Args:
        transform: Applied at every access.
    """

    relation_names = WordNet.relation_names

    def __init__(self, transform: Callable[[Any], Any] | None = None) -> None:
        super().__init__(None, transform)
        with files(__package__).joinpath("raw", "wordnet_verbs.npz").open("rb") as file:
            synsets = Synsets.load(file)
        names = [name.removeprefix("verb.") for name in LEXICOGRAPHER_FILES if name.startswith("verb.")]
        self.data = _graph(synsets, names, first_class=LEXICOGRAPHER_FILES.index("verb.body"))


def _graph(synsets: Synsets, class_names: list[str], first_class: int = 0) -> TextAttributedData:
    out = TextAttributedData(
        text=synsets.text,
        edge_index=torch.from_numpy(np.ascontiguousarray(synsets.edge_index)),
        edge_type=torch.from_numpy(synsets.edge_type),
        text_edges=np.array(WordNet.relation_names)[synsets.edge_type].tolist(),
        y=torch.from_numpy(synsets.lexicographer - first_class),
        class_names=class_names,
        synset=torch.from_numpy(synsets.synset),
    )
    return out.update(split_masks(len(synsets.text)))


def split_masks(num_nodes: int) -> dict[str, Tensor]:
    """A fixed split of 60, 20 and 20 % that does not depend on any library's random numbers."""
    order = np.argsort(splitmix64(np.zeros(1, np.uint64), np.arange(num_nodes, dtype=np.uint64)))
    ends = [0, num_nodes * 6 // 10, num_nodes * 8 // 10, num_nodes]
    masks = {}
    for name, start, end in zip(("train_mask", "val_mask", "test_mask"), ends[:-1], ends[1:], strict=True):
        masks[name] = torch.zeros(num_nodes, dtype=torch.bool)
        masks[name][torch.from_numpy(order[start:end])] = True
    return masks

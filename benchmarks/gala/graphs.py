"""The graphs of the benchmark, from local folders or from the package."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.datasets.wordnet import split_masks

CLASSES = {
    "cora": ["Theory", "Reinforcement Learning", "Genetic Algorithms", "Neural Networks", "Probabilistic Methods",
             "Case Based", "Rule Learning"],
    "citeseer": ["Artificial Intelligence", "Machine Learning", "Information Retrieval", "Databases", "Agents",
                 "Human Computer Interaction"],
}  # fmt: skip


def load(name: str, folder: Path | None) -> Data:
    """A graph with ``edge_index``, ``y``, ``class_names`` and ``train_mask``; with ``text`` where there is any.

    ``folder`` holds Planetoid's raw files (cora, citeseer) or ``nodes.jsonl.gz``, ``edges.csv.gz`` and
    ``classes.json`` (any other name); WordNet's verbs come with the package.
    """
    if name == "wordnet":
        return WordNetVerbs()[0]
    if folder is None:
        raise SystemExit(f"gala: the graph {name!r} needs --folder")
    if name in CLASSES:
        data = read_planetoid_data(str(folder), name)
        data.class_names = CLASSES[name]
        return data
    with gzip.open(folder / "nodes.jsonl.gz", "rt") as lines:
        nodes = [json.loads(line) for line in lines]
    with gzip.open(folder / "edges.csv.gz", "rt") as lines:
        edges = [(int(row[0]), int(row[1])) for row in csv.reader(lines)]
    data = Data(
        edge_index=torch.tensor(edges).T,
        num_nodes=len(nodes),
        y=torch.tensor([node["label"] for node in nodes]),
        text=[node["text"] for node in nodes],
        class_names=json.loads((folder / "classes.json").read_text()),
    )
    return data.update(split_masks(len(nodes)))

"""The rows of a table: one method each, on the same training, validation and test nodes."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, get_args

import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from benchmarks.common import Row, finished
from benchmarks.node_jobs import Job, Method, Settings, some_nodes
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import TextGraphFolder, WordNetVerbs
from pyg_textgraph.datasets.wordnet import split_masks
from pyg_textgraph.metrics import macro_f1
from pyg_textgraph.train import (
    GNNConfig,
    embed_texts,
    label_propagation,
    majority,
    neighbour_vote,
    train_gnn,
)
from pyg_textgraph.train.gnn import GNNName

SIZES: dict[str, Any] = {"train_nodes": 1000, "validation_nodes": 200, "test_nodes": 500, "validations": 2}
# titles stay whole; of a neighbouring verb there are its lemmas and the beginning of its gloss. Co-authors' papers are
# linked with each other, too, so that a written-out graph has most tokens in its edges: fewer neighbours for all rows
SETTINGS = {
    "verbs": Settings("Which class is this verb?", num_neighbors=10, max_neighbor_tokens=10, **SIZES),
    "dblp": Settings("Which area is this paper from?", num_neighbors=6, max_neighbor_tokens=24, **SIZES),
}
SMOKE: dict[str, Any] = {
    "train_nodes": 8, "validation_nodes": 4, "test_nodes": 6, "num_neighbors": 4, "rank": 2, "validations": 1,
}  # fmt: skip
LANGUAGE_MODELS: dict[str, Method] = {
    "zero-shot LM": "zero-shot",
    "text-only LM": "text only",
    "serialized-graph LM": "serialized graph",
    "graph-token LM": "graph tokens",
    "GTLM": "gtlm",
}
GNNS: dict[str, GNNName] = {"GCN": "gcn", "GraphSAGE": "sage", "GAT": "gat"}
METHODS = ("majority", "neighbour vote", "label propagation", *GNNS, *LANGUAGE_MODELS)
GNN_SEEDS = 3
assert set(LANGUAGE_MODELS.values()) == set(get_args(Method))


@dataclass(frozen=True)
class Models:
    """What the rows are made of.

    Args:
        base: The language model's name or folder, or what gives a model and its tokenizer.
        encoder: The text encoder and its tokenizer; MiniLM by default.
        embeddings: Where embeddings are kept; in the user's cache by default.
        gnn: Of the graph neural networks.
    """

    base: str | Callable[[], tuple[Any, Any]]
    encoder: tuple[Any, ...] = ()
    embeddings: Path | None = None
    gnn: GNNConfig = field(default_factory=GNNConfig)


def load_graph(name: str, dblp: Path | None = None) -> TextAttributedData:
    """WordNet's verbs, or the titles of DBLP's papers in four areas, linked both ways by a common author.

    Raises:
        SystemExit: If DBLP's folder is not given.
    """
    if name == "verbs":
        return WordNetVerbs()[0]
    if dblp is None:
        raise SystemExit("the DBLP rows need --dblp FOLDER with nodes.jsonl, edges.csv and classes.json")
    data: TextAttributedData = TextGraphFolder(dblp)[0]
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    return data.update(split_masks(int(data.num_nodes)))


class Rows:
    """Makes the rows of one graph.

    Args:
        graph: A key of ``SETTINGS``.
        data: The graph, with masks of its split.
        settings: Sizes and rates.
        models: What they are made of.
        folder: Where checkpoints and finished rows go.
    """

    def __init__(self, graph: str, data: TextAttributedData, settings: Settings, models: Models, folder: Path) -> None:
        self.graph, self.data, self.settings, self.models, self.folder = graph, data, settings, models, folder
        self.train = some_nodes(data.train_mask, settings.train_nodes)
        self.validation = some_nodes(data.val_mask, settings.validation_nodes)
        self.test = some_nodes(data.test_mask, settings.test_nodes)
        self._x: Tensor | None = None

    @property
    def x(self) -> Tensor:
        """One vector per text, of the text encoder."""
        if self._x is None:
            self._x = embed_texts(
                self.data.text, *self.models.encoder, folder=self.models.embeddings, progress=f"embedding {self.graph}"
            )
        return self._x

    def run(self, method: str, resume: bool) -> Row:
        """One method's row; a language model that was stopped goes on with **resume**, a finished row is read back."""
        name = f"{self.graph} {method}"
        kept = self.folder / name.replace(" ", "_") / "row.json"
        settings = asdict(self.settings) | ({"gnn": asdict(self.models.gnn)} if method in GNNS else {})
        found: Row | None = finished(kept, resume, settings)
        if found is not None:
            return found
        begin = time.perf_counter()
        about: Row = {}
        if method in LANGUAGE_MODELS:
            about, answers = self._language_model(name, LANGUAGE_MODELS[method], resume)
        elif method in GNNS:
            answers = [self._gnn(GNNS[method], seed) for seed in range(GNN_SEEDS)]
        else:
            answers = [self._simple(method)]
        row = {"case": method, "metric": "accuracy", **self._measured(answers), "settings": settings, **about}
        row["minutes_of_last_start"] = round((time.perf_counter() - begin) / 60, 1)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(row))
        return row

    def _measured(self, answers: list[Tensor]) -> Row:
        """Shapes of **answers**: one per seed, (n,)."""
        y, classes = self.data.y[self.test], range(len(self.data.class_names))
        right = [answer == y for answer in answers]
        each = [float(x.float().mean()) for x in right]
        f1 = mean(macro_f1(answer.tolist(), y.tolist(), classes) for answer in answers)
        row: Row = {"value": round(mean(each), 4), "macro_f1": round(f1, 4), "test": y.numel()}
        if len(each) > 1:
            return row | {"std": round(stdev(each), 4), "seeds": len(each), "each": [round(x, 4) for x in each]}
        return row | {"right": right[0].int().tolist()}

    def _simple(self, method: str) -> Tensor:
        if method == "majority":
            return majority(self.data.y, self.train, self.test)
        if method == "neighbour vote":
            return neighbour_vote(self.data, self.train, self.test)
        return label_propagation(self.data, self.train, self.test, validation=self.validation)

    def _gnn(self, name: GNNName, seed: int) -> Tensor:
        return train_gnn(
            name, self.x, self.data, self.train, self.validation, self.test,
            config=self.models.gnn, seed=seed, progress=f"{name}, seed {seed}",
        )  # fmt: skip

    def _language_model(self, name: str, method: Method, resume: bool) -> tuple[Row, list[Tensor]]:
        data = copy.copy(self.data)
        if method == "graph tokens":
            data.x = self.x
        told = Job(name, method, data, self.settings, self.folder, self.models.base).run(resume)
        about: Row = {"trained": told["trained"]}
        about |= {key: round(told[key], 4) for key in ("raw_accuracy", "validation") if key in told}
        return about, [torch.tensor(told["predicted"])]

"""What a row of the leaderboard tells, and graph neural networks on given features, as in OGB's own examples."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.common import device
from pyg_textgraph.train import GNNConfig, build_gnn, train_gnn
from pyg_textgraph.train.gnn import GNNName

Nodes = dict[str, Tensor]  # "train", "valid" and "test": indices
Score = Callable[[Tensor, Tensor], float]  # OGB's evaluator, of predicted and true classes


@dataclass(frozen=True)
class Outcome:
    """Scores at the epoch that is best on validation, the first one on ties."""

    valid: float
    test: float
    parameters: int
    trained: int
    seconds: float


@dataclass(frozen=True)
class GNNRow(GNNConfig):
    """A graph neural network and how it is trained."""

    model: GNNName = "gcn"


def score_gnn(config: GNNRow, data: Data, nodes: Nodes, classes: int, seed: int, score: Score) -> Outcome:
    """Trains on all of ``nodes["train"]`` at once; test nodes are looked at once, after all was chosen."""
    data = data.clone().to(device())
    start = time.perf_counter()
    answers = train_gnn(
        config.model,
        data.x,
        data,
        nodes["train"],
        nodes["valid"],
        torch.cat([nodes["valid"], nodes["test"]]),
        config=config,
        seed=seed,
        progress=f"{config.model}, seed {seed}",
    ).split([len(nodes["valid"]), len(nodes["test"])])
    valid, test = (score(found, data.y[nodes[part]]) for found, part in zip(answers, ("valid", "test"), strict=True))
    count = sum(p.numel() for p in build_gnn(config.model, data.x.size(1), classes, config).parameters())
    return Outcome(valid, test, count, count, time.perf_counter() - start)

"""Graph neural networks on given features, full batch, as in OGB's own examples."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT, GCN, MLP, GraphSAGE
from torch_geometric.utils import to_undirected

CONVOLUTIONS = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT}
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
class GNNConfig:
    """A graph neural network of PyG and how it is trained."""

    model: str
    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int = 500

    def __post_init__(self) -> None:
        if self.model not in ("mlp", *CONVOLUTIONS):
            raise ValueError(f"GNNConfig: 'model' is {self.model!r}, expected one of mlp, {', '.join(CONVOLUTIONS)}")


class OnlyFeatures(nn.Module):
    """A perceptron with the call of a graph neural network."""

    def __init__(self, config: GNNConfig, channels: int, classes: int) -> None:
        super().__init__()
        self.mlp = MLP([channels, *[config.hidden] * (config.layers - 1), classes], dropout=config.dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.mlp(x)


def build(config: GNNConfig, channels: int, classes: int) -> nn.Module:
    if config.model == "mlp":
        return OnlyFeatures(config, channels, classes)
    own = {"heads": 4} if config.model == "gat" else {}
    return CONVOLUTIONS[config.model](
        channels, config.hidden, config.layers, classes, dropout=config.dropout, norm="BatchNorm", **own
    )


def train_gnn(config: GNNConfig, data: Data, nodes: Nodes, classes: int, seed: int, score: Score) -> Outcome:
    """Trains on all of ``nodes["train"]`` at once; test nodes are looked at once an epoch and choose nothing."""
    seed_everything(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build(config, data.x.size(1), classes).to(device)
    x, y = data.x.to(device), data.y.to(device)
    edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    start = time.perf_counter()
    best = (-1.0, -1.0)
    for _ in range(config.epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[nodes["train"]], y[nodes["train"]]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            predicted = model(x, edge_index).argmax(-1)
        valid, test = (score(predicted[nodes[part]], y[nodes[part]]) for part in ("valid", "test"))
        if valid > best[0]:
            best = valid, test
    count = sum(p.numel() for p in model.parameters())
    return Outcome(*best, count, count, time.perf_counter() - start)

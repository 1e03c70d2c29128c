"""PyG's Planetoid example with GTLMConv in place of GCNConv; see README.md."""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import mean, median, stdev

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GATConv, GCNConv

from benchmarks.common import Row, write_results
from pyg_textgraph.nn import GTLMConv


class TwoLayers(nn.Module):
    """The model of PyG's examples ``gcn.py`` and ``gat.py``."""

    def __init__(
        self, first: nn.Module, second: nn.Module, dropout: float, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.first, self.second, self.dropout, self.activation = first, second, dropout, activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)
        x = self.activation(self.first(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, edge_index)


def gcn(channels: int, classes: int) -> TwoLayers:
    return TwoLayers(GCNConv(channels, 16, cached=True), GCNConv(16, classes, cached=True), 0.5, F.relu)


def gat(channels: int, classes: int) -> TwoLayers:
    conv = partial(GATConv, dropout=0.6)
    return TwoLayers(conv(channels, 8, heads=8), conv(64, classes, concat=False), 0.6, F.elu)


def gtlm(channels: int, classes: int) -> TwoLayers:
    conv = partial(GTLMConv, k_hop=1, biases=("rrwp",), cached=True)
    return TwoLayers(conv(channels, 8, heads=4), conv(32, classes, concat=False), 0.8, F.elu)


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained."""

    make: Callable[[int, int], TwoLayers]
    lr: float
    epochs: int
    decay: tuple[float, float] = (5e-4, 5e-4)  # of the first and the second layer


RECIPES = {
    "GCNConv": Recipe(gcn, lr=0.01, epochs=200, decay=(5e-4, 0.0)),
    "GATConv": Recipe(gat, lr=0.005, epochs=200),
    "GTLMConv": Recipe(gtlm, lr=0.02, epochs=100),
}


@dataclass(frozen=True)
class Run:
    """Accuracies at the epoch that is best on validation, the first one on ties."""

    val: float
    test: float
    epoch: int
    seconds_per_epoch: float


def train(recipe: Recipe, data: Data, classes: int, seed: int) -> Run:
    seed_everything(seed)
    model = recipe.make(data.num_features, classes)
    parts = zip((model.first, model.second), recipe.decay, strict=True)
    groups = [{"params": layer.parameters(), "weight_decay": decay} for layer, decay in parts]
    optimizer = torch.optim.Adam(groups, lr=recipe.lr)
    best, seconds = (0.0, 0.0, 0), []
    for epoch in range(1, recipe.epochs + 1):
        start = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(data.x, data.edge_index).argmax(-1) == data.y).float()
        seconds.append(time.perf_counter() - start)
        val, test = (right[mask].mean().item() for mask in (data.val_mask, data.test_mask))
        if val > best[0]:
            best = val, test, epoch
    return Run(*best, median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default="data/Planetoid", help="where PyG's Planetoid keeps (or puts) its files")
    parser.add_argument("--dataset", default="Cora", choices=["Cora", "CiteSeer", "PubMed"])
    parser.add_argument("--models", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one seed, writes nothing")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dataset = Planetoid(args.root, args.dataset, transform=T.NormalizeFeatures())
    data, rows = dataset[0], []
    for name in args.models:
        runs = []
        for seed in range(1 if args.quick else args.seeds):
            runs.append(train(RECIPES[name], data, dataset.num_classes, seed))
            print(f"{name} seed={seed} {runs[-1]}", flush=True)
        rows += summary(f"{args.dataset} public split {name}", runs)
    if not args.quick:
        print(write_results("planetoid", rows, sys.argv))


def summary(case: str, runs: list[Run]) -> list[Row]:
    test = [run.test for run in runs]
    spread = stdev(test) if len(test) > 1 else 0.0
    val, seconds = mean(run.val for run in runs), median(run.seconds_per_epoch for run in runs)
    print(f"{case}: test {mean(test):.4f} ± {spread:.4f}, validation {val:.4f}, {seconds:.3f} s per epoch", flush=True)
    return [
        {"case": case, "metric": "test accuracy", "value": round(mean(test), 4), "std": round(spread, 4),
         "seeds": len(runs), "each": [round(x, 4) for x in test]},
        {"case": case, "metric": "validation accuracy", "value": round(val, 4)},
        {"case": case, "metric": "seconds per epoch", "value": round(seconds, 4)},
    ]  # fmt: skip


if __name__ == "__main__":
    main()

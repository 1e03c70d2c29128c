"""A leaderboard in OGB's way: its data format, its splits, its evaluator, several seeds; see README.md."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from ogb.nodeproppred import Evaluator
from torch import Tensor

from benchmarks.common import Row, write_results
from benchmarks.node_classification.gtlm import GTLMConfig, train_gtlm
from benchmarks.node_classification.models import GNNRow, Nodes, Outcome, score_gnn
from benchmarks.node_classification.verbs import NAME, write_verbs
from benchmarks.node_jobs import some_nodes
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import attach_text, ogb_nodes
from pyg_textgraph.train import Interrupted

HERE = Path(__file__).parent
TEMPLATES = {NAME: "{title}: {abstract}", "ogbn-arxiv": "{title}\n{abstract}", "ogbn-products": "{title}\n{content}"}
Config = GNNRow | GTLMConfig


@dataclass(frozen=True)
class Limits:
    """How many nodes of each split are used, in a fixed random order; None is all, as on OGB's leaderboards."""

    train: int | None = None
    valid: int | None = None
    test: int | None = None

    def __str__(self) -> str:
        if self == Limits():
            return "full split"
        return " ".join(f"{part}={size}" for part, size in asdict(self).items() if size is not None)

    def nodes(self, data: TextAttributedData) -> Nodes:
        out = {}
        for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
            out[part] = some_nodes(data[mask], getattr(self, part))
        return out


def read_config(name: str) -> tuple[str, Config]:
    """A file of ``configs``, by name or path: ``title``, and the fields of one configuration."""
    path = Path(name) if name.endswith(".toml") else HERE / "configs" / f"{name}.toml"
    told = tomllib.loads(path.read_text())
    title = told.pop("title")
    return title, GNNRow(**told) if "model" in told else GTLMConfig(**told)


def load(name: str, root: Path) -> TextAttributedData:
    """The graph with texts, masks and class names."""
    if name != NAME:
        return attach_text(ogb_nodes(name, root), name, root, template=TEMPLATES[name])
    own = write_verbs(root)
    return attach_text(ogb_nodes(NAME, own, own.parent / "meta_dict.pt"), "ogbn-arxiv", own,
                       template=TEMPLATES[NAME], checksums={})  # fmt: skip


def one_seed(
    config: Config, data: TextAttributedData, nodes: Nodes, seed: int, evaluator: Evaluator, folder: Path
) -> Outcome:
    """Trains and evaluates, or reads what an earlier call found."""
    done = folder / "outcome.json"
    if done.is_file():
        return Outcome(**json.loads(done.read_text()))

    def score(predicted: Tensor, true: Tensor) -> float:
        return float(evaluator.eval({"y_pred": predicted.view(-1, 1), "y_true": true.view(-1, 1)})["acc"])

    if isinstance(config, GNNRow):
        out = score_gnn(config, data, nodes, len(data.class_names), seed, score)
    else:
        out = train_gtlm(config, data, nodes, seed, score, folder)
    folder.mkdir(parents=True, exist_ok=True)
    done.write_text(json.dumps(asdict(out)))
    return out


def summary(case: str, outcomes: list[Outcome], config: Config) -> list[Row]:
    """Mean and standard deviation over seeds, parameters, and what the row was made with."""
    rows: list[Row] = []
    for part in ("test", "valid"):
        each = [getattr(outcome, part) for outcome in outcomes]
        row: Row = {"case": case, "metric": f"{part} accuracy", "value": round(mean(each), 4)}
        row |= {"std": round(stdev(each), 4)} if len(each) > 1 else {}
        row |= {"seeds": len(each), "parameters": outcomes[0].parameters, "trained": outcomes[0].trained}
        row |= {"each": [round(x, 4) for x in each], "seconds": round(mean(x.seconds for x in outcomes), 1)}
        rows.append(row | {"config": asdict(config)} if part == "test" else row)
    return rows


def run(names: Sequence[str], data: TextAttributedData, dataset: str, limits: Limits, seeds: int, folder: Path,
        smoke: bool = False) -> list[Row]:  # fmt: skip
    evaluator = Evaluator("ogbn-arxiv" if dataset == NAME else dataset)  # accuracy; OGB knows its own names only
    nodes, rows = limits.nodes(data), []
    for name in names:
        title, config = read_config(name)
        if smoke:
            short: dict[str, Any] = {"epochs": 2 if isinstance(config, GNNRow) else 1}
            config = replace(config, **short)
        about = json.dumps([dataset, asdict(config), asdict(limits)], sort_keys=True)
        own = folder / f"{dataset}-{Path(name).stem}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"
        outcomes = []
        for seed in range(seeds):
            outcomes.append(one_seed(config, data, nodes, seed, evaluator, own / f"seed{seed}"))
            print(f"{title} seed={seed} {outcomes[-1]}", flush=True)
        rows += summary(f"{dataset} {limits} {title}", outcomes, config)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default=NAME, choices=list(TEMPLATES))
    parser.add_argument(
        "--root", type=Path, default=Path("data/ogb"), help="where OGB's data sets are, and their texts"
    )
    parser.add_argument("--configs", nargs="+", default=["mlp", "gcn", "sage"], help="names in configs/, or paths")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--train", type=int, help="use that many training nodes only; likewise:")
    parser.add_argument("--valid", type=int)
    parser.add_argument("--test", type=int)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/node_classification"), help="checkpoints and outcomes"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--label", default="", help="tells result files apart")
    parser.add_argument("--smoke", action="store_true", help="a few nodes and epochs, one seed, writes no results")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    limits = Limits(16, 8, 8) if args.smoke else Limits(args.train, args.valid, args.test)
    data = load(args.dataset, args.root)
    print(f"{args.dataset}: {data.num_nodes} nodes, {data.num_edges} edges, {len(data.class_names)} classes; {limits}")
    seeds = 1 if args.smoke else args.seeds
    try:
        rows = run(args.configs, data, args.dataset, limits, seeds, args.folder, args.smoke)
    except Interrupted as stop:
        sys.exit(f"{stop}. The same command goes on.")
    for row in rows:
        print(f"{row['case']:<50} {row['metric']:<15} {row['value']:.4f} ± {row.get('std', 0):.4f}")
    if not args.smoke:
        print(write_results("node_classification", rows, sys.argv, args.label))


if __name__ == "__main__":
    main()

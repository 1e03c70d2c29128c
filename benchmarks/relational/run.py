"""A relational task: a column of one table, predicted from the rows of other tables; see README.md."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import Row, write_results
from benchmarks.node_classification.gtlm import GTLMConfig, train_gtlm
from benchmarks.relational.hospital import KEYS, RELATIONS, TEXT, hospital
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import from_tables
from pyg_textgraph.train import Interrupted, majority

GTLM = GTLMConfig(
    question="In which department does this doctor work?",
    num_neighbors=16,
    num_hops=2,
    max_target_tokens=32,
    max_neighbor_tokens=16,
    epochs=2,
    validations=2,
    validation_nodes=48,
)
SMOKE = replace(GTLM, num_neighbors=4, epochs=1, validations=1)


def load(num_doctors: int = 600, seed: int = 0) -> TextAttributedData:
    """The hospital as a text graph; the department is in nobody's text."""
    return from_tables(
        hospital(num_doctors, seed=seed),
        KEYS,
        text=TEXT,
        label="doctors.department",
        split="doctors.split",
        relations=RELATIONS,
    )


def accuracy(predicted: Tensor, true: Tensor) -> float:
    return float((predicted == true).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--doctors", type=int, default=600)
    parser.add_argument("--train", type=int, default=160, help="training doctors used")
    parser.add_argument("--folder", type=Path, default=Path("runs/relational"), help="where checkpoints go")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="a few doctors: does everything run? Writes no results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = load(40 if args.smoke else args.doctors)
    nodes = {part: data[f"{mask}_mask"].nonzero().view(-1) for part, mask in
             (("train", "train"), ("valid", "val"), ("test", "test"))}  # fmt: skip
    nodes["train"] = nodes["train"][: args.train]
    base = SMOKE if args.smoke else GTLM
    folder = args.folder / ("smoke" if args.smoke else f"doctors{args.doctors}-train{args.train}")
    guess = majority(data.y, nodes["train"], nodes["test"])
    scores = {"majority": accuracy(guess, data.y[nodes["test"]])}
    try:
        for name, config in (("text only", replace(base, num_neighbors=0)), ("gtlm", base)):
            scores[name] = train_gtlm(config, data, nodes, 0, accuracy, folder / name).test
    except Interrupted as stop:
        sys.exit(f"{stop}. The same command goes on.")
    sizes = f"train={len(nodes['train'])} test={len(nodes['test'])}"
    rows: list[Row] = [{"case": f"{name} {sizes}", "metric": "accuracy", "value": x} for name, x in scores.items()]
    for row in rows:
        print(f"{row['case']:<32} {row['value']:.3f}")
    if not args.smoke:
        print(write_results("relational", rows, sys.argv))


if __name__ == "__main__":
    main()

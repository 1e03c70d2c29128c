"""Which class is this node? GTLM against every baseline, on WordNet's verbs and on DBLP's papers. See README.md.

One job is one row. A run that was stopped goes on with --resume; --record writes one result file per row, and from the
newest file of each row that of the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, ByT5Tokenizer

from benchmarks.cli import interruptible, parse, resumable
from benchmarks.common import Row, write_results
from benchmarks.node_jobs import tiny_language_model
from benchmarks.tables import newest
from benchmarks.text_graphs.rows import METHODS, SETTINGS, SMOKE, Models, Rows, load_graph
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.metrics import mcnemar
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.train import GNNConfig

QUESTION = "text_graphs"
SHOWN = ("case", "metric", "value", "std", "seeds", "macro_f1", "raw_accuracy", "trained", "mcnemar_p")


def names(graphs: Sequence[str] = tuple(SETTINGS)) -> list[str]:
    """All jobs, such as ``"verbs GTLM"``."""
    return [f"{graph} {method}" for graph in graphs for method in METHODS]


def label(name: str) -> str:
    """What a job's result file ends in."""
    return re.sub(r"\W+", "_", name.lower())


def tiny_models(folder: Path) -> Models:
    """Random models that need no files."""
    tokenizer = ByT5Tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes))
    return Models(tiny_language_model, (encoder, tokenizer), folder, GNNConfig(hidden=16, epochs=2))


def few_nodes(data: TextAttributedData) -> TextAttributedData:
    """The first and the last 200 nodes: neighbours are close to each other, and so are classes."""
    n = int(data.num_nodes)
    return data.subgraph(torch.cat([torch.arange(min(200, n)), torch.arange(max(min(200, n), n - 200), n)]))


def table(rows: list[Row]) -> list[Row]:
    """A table's rows: what is shown, and the probability of as large a difference from GTLM by chance."""
    right = {row["case"]: torch.tensor(row["right"]).bool() for row in rows if "right" in row}
    out = []
    for row in rows:
        shown = {key: row[key] for key in SHOWN if key in row} | {"case": f"{row['case']} test={row['test']}"}
        if row["case"] != "GTLM" and {"GTLM", row["case"]} <= right.keys():
            shown["mcnemar_p"] = float(f"{mcnemar(right['GTLM'], right[row['case']]):.2g}")
        out.append(shown)
    return out


def collect(folder: Path | None = None) -> list[Path]:
    """One result file per graph, from the newest file of each of its rows."""
    written = []
    for graph in SETTINGS:
        found = [result["rows"][0] for name in names([graph]) if (result := newest(QUESTION, label(name), folder))]
        if found:
            written.append(write_results(QUESTION, table(found), sys.argv, graph, folder))
    return written


def main(argv: Sequence[str] | None = None) -> None:
    parser = resumable(__doc__, None, "tiny random models, a few nodes")
    parser.add_argument("--dblp", type=Path, default=None, help="folder with the DBLP four-area graph; without: verbs")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=None, help="names of jobs (see --plan)")
    parser.add_argument("--plan", action="store_true", help="print the names of the jobs")
    parser.add_argument("--threads", type=int, default=None, help="of torch")
    args = parse(parser, argv)
    graphs = [graph for graph in SETTINGS if graph != "dblp" or args.dblp is not None]
    chosen = args.only or names(graphs)
    if unknown := set(chosen) - set(names()):
        parser.error(f"--only: there is no job {sorted(unknown)[0]!r}; there are: {', '.join(names())}")
    if args.plan:
        print("\n".join(chosen))
        return
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    folder = args.folder or Path("runs") / (f"{QUESTION}-smoke" if args.smoke else QUESTION)
    base, source = ("", "random") if args.smoke else fetch(SMOLLM2)
    models = tiny_models(folder) if args.smoke else Models(base)
    print(f"language model: {'tiny' if args.smoke else 'SmolLM2-135M-Instruct'}, from {source}")
    made: dict[str, Rows] = {}
    for name in chosen:
        graph, method = name.split(" ", 1)
        if graph not in made:
            data, settings = load_graph(graph, args.dblp), SETTINGS[graph]
            if args.smoke:
                data, settings = few_nodes(data), replace(settings, **SMOKE)
            made[graph] = Rows(graph, data, settings, models, folder)
        with interruptible():
            row = made[graph].run(method, args.resume) | {"weights": source}
        print(f"{name:<30} {row['value']:.3f}  {row['minutes_of_last_start']:.1f} minutes", flush=True)
        if args.record:
            print(write_results(QUESTION, [row], sys.argv, label(name)))
    if args.record:
        print(*collect(), sep="\n")


if __name__ == "__main__":
    main()

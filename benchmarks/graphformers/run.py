"""Does looking at neighbours inside the encoder beat looking at them afterwards?

Trains GraphFormers, its variants and the cascades on the same links from the same weights, and ranks each test link's
answer among 300. Every job can be interrupted and goes on with --resume; finished ones are read back.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from benchmarks.cli import interruptible, parse, resumable
from benchmarks.common import Row
from benchmarks.graphformers import jobs
from benchmarks.graphformers.jobs import SMOKE, Job, LinkData, Settings
from benchmarks.graphformers.report import record
from pyg_textgraph.pretrained import MINILM, fetch

CASCADES = ("mean", "max", "attention", "gat")
SHARED = ("data", "seed", "num_neighbors")  # what a model and its peer have in common
MAIN = [
    Job("dblp graphformers"),
    *(Job(f"dblp {pooling}", model=pooling) for pooling in ("text", *CASCADES)),
]
VARIANTS = [
    Job("dblp graphformers one stage", two_stage=False),
    Job("dblp graphformers symmetric", options={"symmetric": True}),
    Job("dblp graphformers bidirectional", options={"bidirectional": True}),
    Job("dblp graphformers no relation bias", options={"relation_bias": False}),
    Job("dblp graphformers attention per layer", options={"shared_attention": False}),
    *(Job(f"dblp graphformers {n} neighbours", num_neighbors=n) for n in (1, 3, 10)),
    Job("dblp max 10 neighbours", model="max", num_neighbors=10),
]


def more_jobs(results: dict[str, dict[str, Any]]) -> list[Job]:
    """What depends on who is best: second and third seeds, and WordNet."""
    first = {name: results[f"dblp {name}"]["metrics"]["p@1"] for name in ("text", *CASCADES)}
    best = sorted(first, key=lambda name: -first[name])[:2]
    cascade = max(CASCADES, key=lambda name: first[name])
    seeds = [Job(f"dblp {name} seed={s}", model=name, seed=s) for s in (1, 2) for name in ("graphformers", *best)]
    return seeds + [Job(f"wordnet {name}", "wordnet", name) for name in ("graphformers", "text", cascade)]


def rows(results: dict[str, dict[str, Any]]) -> list[Row]:
    """One row per job and metric; the peer is the best cascade on the same data, seed and number of neighbours."""
    out: list[Row] = []
    for name, told in results.items():
        job = told["job"]
        peers = {
            other["job"]["model"]: other["metrics"]
            for other in results.values()
            if other["job"]["model"] in CASCADES and all(other["job"][key] == job[key] for key in SHARED)
        }
        peer = max(peers, key=lambda p: peers[p]["p@1"], default=None)
        about = {"minutes": round(told["seconds"] / 60, 1), "settings": told["settings"]}
        for metric, value in told["metrics"].items():
            against = {} if peer is None else {"peer": f"best cascade: {peer}", "peer_value": peers[peer][metric]}
            out.append({"case": name, "metric": metric, "value": value, **against, **about})
    return out + over_seeds(results)


def over_seeds(results: dict[str, dict[str, Any]]) -> list[Row]:
    """Means of what was trained with several seeds."""
    groups: dict[str, list[dict[str, float]]] = {}
    for name, told in results.items():
        groups.setdefault(name.partition(" seed=")[0], []).append(told["metrics"])
    out: list[Row] = []
    for name, metrics in groups.items():
        if len(metrics) > 1:
            for metric in metrics[0]:
                values = [found[metric] for found in metrics]
                row: Row = {"case": f"{name}, mean of {len(values)} seeds", "metric": metric, "value": mean(values)}
                out.append(row | {"std": stdev(values), "seeds": len(values)})
    return out


def main() -> None:
    parser = resumable(__doc__, None, "a few links only")
    parser.add_argument("--dblp", type=Path, default=None, help="folder with the DBLP four-area graph")
    parser.add_argument("--only", nargs="*", default=None, help="names of jobs (see --plan); all by default")
    parser.add_argument("--plan", action="store_true", help="print the names of the jobs that are known by now")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 products, for all models alike")
    args = parse(parser)
    settings = SMOKE if args.smoke else Settings()
    folder = args.folder or Path("runs") / ("graphformers-smoke" if args.smoke else "graphformers")
    base, source = fetch(MINILM)
    print(f"text encoder: all-MiniLM-L6-v2, from {source}")
    if args.plan:
        print("\n".join(job.name for job in MAIN + VARIANTS))
        print("then: two more seeds of the best three on DBLP, and three models on WordNet")
        return
    graphs: dict[str, LinkData] = {}
    results: dict[str, dict[str, Any]] = {}

    def go(some: list[Job]) -> None:
        for job in some:
            if args.only is not None and job.name not in args.only:
                continue
            if job.data not in graphs:
                graphs[job.data] = LinkData.load(job.data, settings, args.dblp)
            autocast = torch.bfloat16 if args.bf16 else None
            told = jobs.run(job, graphs[job.data], settings, base, folder, args.resume, autocast)
            results[job.name] = told
            metrics = "  ".join(f"{name} {value:.4f}" for name, value in told["metrics"].items())
            print(f"{job.name:<42} {metrics}  {told['seconds'] / 60:.1f} minutes")

    with interruptible():
        go(MAIN)
        if all(job.name in results for job in MAIN):
            go(more_jobs(results))
        go(VARIANTS)
    if args.record:
        print(record(rows(results), sys.argv))


if __name__ == "__main__":
    main()

"""One trained and tested model of the link-prediction benchmark."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from pyg_textgraph.data import SpanMasking
from pyg_textgraph.datasets import TextGraphFolder, WordNetVerbs
from pyg_textgraph.metrics import ranking_metrics, sample_candidates
from pyg_textgraph.nn import GraphFormers, KnownLinks, PooledTextEncoder, TextGraphEncoder
from pyg_textgraph.sampling import NeighborTextSampler
from pyg_textgraph.train import LinkObjective, LinkTrainer, TrainConfig, in_batch_candidates, link_ranks
from pyg_textgraph.transforms import SplitTextLinks


@dataclass(frozen=True)
class Settings:
    """What all models of a benchmark share."""

    train_links: int = 10_000
    val_links: int = 200
    test_links: int = 1500
    num_negatives: int = 299
    max_tokens: int = 16
    batch_size: int = 32
    epochs: int = 1
    lr: float = 1e-4
    graph_lr: float = 1e-3
    temperature: float = 5.0
    validations: int = 8
    longest_masked: float = 0.5


SMOKE = Settings(train_links=64, val_links=16, test_links=16, num_negatives=49, batch_size=16, validations=2)


@dataclass(frozen=True)
class Job:
    """A model, its data and its seed; **options** are arguments of the model."""

    name: str
    data: str = "dblp"
    model: str = "graphformers"
    seed: int = 0
    num_neighbors: int = 5
    two_stage: bool = True
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LinkData:
    """A graph split for link prediction, with the wrong answers every model is tested on."""

    train: Data
    val: Data
    test: Data
    known: KnownLinks
    candidates: Tensor

    @classmethod
    def load(cls, name: str, settings: Settings, dblp: Path | None) -> LinkData:
        data = load_graph(name, dblp)
        assert data.edge_index is not None
        assert data.num_nodes is not None
        train, val, test = SplitTextLinks(settings.val_links, settings.test_links)(data)
        candidates = sample_candidates(
            test.edge_label_index, data.num_nodes, settings.num_negatives, known=data.edge_index
        )
        return cls(train, val, test, KnownLinks(data.edge_index, data.num_nodes), candidates)


def load_graph(name: str, dblp: Path | None) -> Data:
    """DBLP titles linked by a common author, or WordNet's verbs linked by hypernymy."""
    if name == "dblp":
        if dblp is None:
            raise SystemExit("the DBLP jobs need --dblp FOLDER with nodes.jsonl, edges.csv and classes.json")
        return TextGraphFolder(dblp)[0]
    data = WordNetVerbs()[0]
    hypernym = torch.tensor([relation == "hypernym" for relation in data.text_edges])
    return Data(text=data.text, edge_index=data.edge_index[:, hypernym], num_nodes=data.num_nodes)


def build(job: Job, base: str) -> TextGraphEncoder:
    torch.manual_seed(job.seed)
    if job.model == "graphformers":
        return GraphFormers.from_pretrained(base, **job.options)
    return PooledTextEncoder.from_pretrained(base, pooling=job.model)


def run(
    job: Job, data: LinkData, settings: Settings, base: str, folder: Path, resume: bool, autocast: torch.dtype | None
) -> dict[str, Any]:
    """Trains and tests; a finished job is read back, an interrupted one goes on."""
    folder = folder / job.name.replace(" ", "_")
    result = folder / "result.json"
    if resume and result.is_file():
        told: dict[str, Any] = json.loads(result.read_text())
        return told
    model = build(job, base)
    assert model.tokenizer is not None
    neighbors = 0 if job.model == "text" else job.num_neighbors
    sampler = {
        name: model.sampler(part, neighbors, settings.max_tokens, seed=job.seed)
        for name, part in (("train", data.train), ("test", data.test))
    }
    order = torch.randperm(data.train.edge_label_index.size(1), generator=torch.Generator().manual_seed(0))
    links = data.train.edge_label_index[:, order[: settings.train_links]]
    graph = list(model.graph_parameters().values())
    encoder = [p for p in model.encoder.parameters() if p.requires_grad]
    groups = [{"params": encoder, "lr": settings.lr}, {"params": graph, "lr": settings.graph_lr}]
    steps = settings.epochs * -(-links.size(1) // settings.batch_size)
    config = TrainConfig(
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=job.seed,
        validate_every=max(1, steps // settings.validations),
        save_every=25,
    )
    known = KnownLinks(data.train.edge_index, len(sampler["train"].store))
    trainer = LinkTrainer(
        LinkObjective(model, known, temperature=settings.temperature, autocast=autocast),
        sampler["train"],
        links,
        torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.01),
        config,
        folder,
        lambda objective: validation_score(objective, data, sampler["train"], autocast),
        masking=SpanMasking(model.tokenizer) if job.two_stage else None,
        longest=settings.longest_masked,
        name=job.name,
    )
    start = time.perf_counter()
    history = trainer.run(resume)
    seconds = time.perf_counter() - start
    model.eval()
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        ranks = link_ranks(model, sampler["test"], data.test.edge_label_index, data.candidates, progress=True)
    told = {
        "job": asdict(job),
        "settings": asdict(settings) | {"precision": "float32" if autocast is None else str(autocast)},
        "metrics": ranking_metrics(ranks),
        "ranks": ranks.tolist(),
        "seconds": seconds,
        "history": history,
    }
    result.write_text(json.dumps(told))
    return told


def validation_score(
    objective: nn.Module, data: LinkData, sampler: NeighborTextSampler, autocast: torch.dtype | None
) -> float:
    """P@1 among the other validation links' answers: few nodes to embed, and test is never looked at."""
    links = data.val.edge_label_index
    assert isinstance(objective, LinkObjective)
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        ranks = link_ranks(objective.model, sampler, links, in_batch_candidates(links, data.known))
    return ranking_metrics(ranks)["p@1"]

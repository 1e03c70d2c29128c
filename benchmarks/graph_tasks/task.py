"""From a configuration to tokenized graphs and a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch.utils.data import Dataset, Subset

from benchmarks.common import device
from benchmarks.graph_tasks.config import Config
from benchmarks.node_jobs import tiny_language_model
from pyg_textgraph import datasets
from pyg_textgraph.datasets import QuestionGraphs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, SerializeGraph, TokenizeQuestion

FEATURES: dict[str, Callable[[], Any]] = {
    "spd": lambda: AddSPD(8),
    "rrwp": lambda: AddRRWP(16),
    "magnetic": lambda: AddMagneticLaplacian(q=0.25),
}


def make_model(config: Config, smoke: bool = False) -> tuple[GTLM, str]:
    """The model, and where its weights come from."""
    biases = config.biases if config.method == "gtlm" else ()
    lora = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, lora_dropout=0.05) if config.rank else None
    if config.method == "zero-shot":
        lora = None
    torch.manual_seed(config.seed)
    if smoke:
        return GTLM(*tiny_language_model(), lora, biases=biases).to(device()), "random"
    name, source = fetch(SMOLLM2) if config.base == "smollm2" else (config.base, config.base)
    dtype = getattr(torch, config.dtype)
    return GTLM.from_pretrained(name, lora=lora, dtype=dtype, biases=biases).to(device()), source


def make_data(config: Config, split: str, tokenizer: Any, sizes: tuple[int, int, int] | None = None) -> QuestionGraphs:
    """One split, tokenized and with the features that the biases need."""
    arguments = dict(config.arguments)
    steps: list[Any] = [TokenizeQuestion(tokenizer)]
    if config.method == "gtlm":
        steps += [FEATURES[name]() for name in config.biases]
    else:
        arguments["form"] = "plain"
        steps.insert(0, SerializeGraph(merge_reciprocal=True))
    if sizes is not None:
        arguments["sizes"] = sizes
    make = getattr(datasets, config.dataset)
    data: QuestionGraphs = make(split=split, seed=config.seed, transform=T.Compose(steps), **arguments)
    return data


def passes(data: Dataset[Any], size: int, seed: int) -> Subset[Any]:
    """A number of graphs from a training set: as many whole passes as fit, each in its own order, and a part of one."""
    generator = torch.Generator().manual_seed(seed)
    length = len(data)  # type: ignore[arg-type]
    order = [torch.randperm(length, generator=generator) for _ in range(-(-size // length))]
    return Subset(data, torch.cat(order)[:size].tolist())

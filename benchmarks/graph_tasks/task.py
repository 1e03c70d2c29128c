"""From a configuration to tokenized graphs and a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch.utils.data import Dataset, Subset
from torch_geometric.data import Data
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.graph_tasks.config import Config
from pyg_textgraph import datasets
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import QuestionGraphs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.pretrained import SMOLLM2, fetch
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, TokenizeQuestion

FEATURES: dict[str, Callable[[], Any]] = {
    "spd": lambda: AddSPD(8),
    "rrwp": lambda: AddRRWP(16),
    "magnetic": lambda: AddMagneticLaplacian(q=0.25),
}


class WriteOut:
    """The whole graph as the text of one target node: all nodes, then one line per edge, then the question."""

    def __call__(self, data: Data) -> TextAttributedData:
        relations = data.text_edges if "text_edges" in data else ["EDGE"] * data.num_edges
        known = {(u, v, name) for (u, v), name in zip(data.edge_index.T.tolist(), relations, strict=True)}
        lines = [
            f"({name_of(data.text[u])}, {name}, {name_of(data.text[v])})"
            for (u, v), name in zip(data.edge_index.T.tolist(), relations, strict=True)
            if u <= v or (v, u, name) not in known  # an undirected edge is written once
        ]
        text = "\n".join([*data.text, *lines, data.question])
        out = TextAttributedData(text=[text], edge_index=torch.empty(2, 0, dtype=torch.long), target=0)
        out.question, out.answer = data.question, data.answer
        if "y" in data:
            out.y = data.y
        return out


def name_of(text: str) -> str:
    """What a node's text begins with: its name."""
    return text.split(",")[0]


def make_model(config: Config, smoke: bool = False) -> tuple[GTLM, str]:
    """The model, and where its weights come from."""
    biases = config.biases if config.method == "gtlm" else ()
    lora = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, lora_dropout=0.05) if config.rank else None
    if config.method == "zero-shot":
        lora = None
    torch.manual_seed(config.seed)
    if smoke:
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        tokenizer = ByT5Tokenizer()  # bytes: needs no files
        sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 8192, "eos_token_id": 1}
        base = LlamaForCausalLM(LlamaConfig(**sizes))
        return GTLM(base, tokenizer, lora, biases=biases), "random"
    name, source = fetch(SMOLLM2) if config.base == "smollm2" else (config.base, config.base)
    dtype = getattr(torch, config.dtype)
    return GTLM.from_pretrained(name, lora=lora, dtype=dtype, biases=biases), source


def make_data(config: Config, split: str, tokenizer: Any, sizes: tuple[int, int, int] | None = None) -> QuestionGraphs:
    """One split, tokenized and with the features that the biases need."""
    arguments = dict(config.arguments)
    steps: list[Any] = [TokenizeQuestion(tokenizer)]
    if config.method == "gtlm":
        steps += [FEATURES[name]() for name in config.biases]
    else:
        arguments["form"] = "plain"
        steps.insert(0, WriteOut())
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

"""Language models that answer one question about nodes of a big graph: one job is one model, trained and tested."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch import Tensor
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.common import device, finished
from pyg_textgraph.data import TextAttributedData, TokenStore
from pyg_textgraph.nn import GTLM, GraphTokenLM, TextGraphLM
from pyg_textgraph.sampling import EgoTextDataset
from pyg_textgraph.train import TrainConfig, Trainer, class_scores
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler, SerializeGraph

Method = Literal["gtlm", "text only", "serialized graph", "graph tokens", "zero-shot"]
WITHOUT_GRAPH: tuple[Method, ...] = ("text only", "zero-shot")


@dataclass(frozen=True)
class Settings:
    """What the jobs of one comparison share.

    Args:
        question: What is asked of every node.
        train_nodes, validation_nodes, test_nodes: Taken at random from each part of the split.
        num_neighbors, num_hops: The most other nodes of an ego, and how far they are.
        max_target_tokens, max_neighbor_tokens: Cut the texts.
        epochs, batch_size: Of training.
        lr, bias_lr, projector_lr: Highest rates of adapters, graph biases, and soft tokens' projector and heads.
        rank: Of the adapters.
        validations: How often the best parameters are chosen.
    """

    question: str
    train_nodes: int = 480
    validation_nodes: int = 64
    test_nodes: int = 300
    num_neighbors: int = 16
    num_hops: int = 2
    max_target_tokens: int = 48
    max_neighbor_tokens: int = 8
    epochs: int = 1
    batch_size: int = 4
    lr: float = 3e-4
    bias_lr: float = 2e-2
    projector_lr: float = 2e-3
    rank: int = 32
    validations: int = 3


def some_nodes(mask: Tensor, size: int | None, seed: int = 0) -> Tensor:
    """The nodes of a mask in a fixed random order, all or the first ones."""
    nodes = mask.nonzero().view(-1)
    return nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))[:size]]


def tiny_language_model() -> tuple[LlamaForCausalLM, ByT5Tokenizer]:
    """A random decoder that reads bytes: needs no files."""
    tokenizer = ByT5Tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 8192, "eos_token_id": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes)), tokenizer


class Job:
    """One language model, its training and its answers.

    - ``"gtlm"`` reads the texts of a node and of its surroundings, with all three biases
    - ``"serialized graph"`` reads the same texts, and the edges, written out one after the other; no method reads names
      of relations
    - ``"graph tokens"`` reads the node's text after one soft token per node, ``data.x`` projected
    - ``"text only"`` reads the node's text alone
    - ``"zero-shot"`` does so untrained; each class's mean score over the validation nodes is subtracted

    Args:
        name: Shown, and the name of its folder.
        method: See above.
        data: The graph, with masks of the split; with ``x`` for graph tokens.
        settings: Shared by all jobs.
        folder: Where the folders of jobs are.
        base: A language model's name or folder, or what gives a model and its tokenizer.
    """

    def __init__(
        self,
        name: str,
        method: Method,
        data: TextAttributedData,
        settings: Settings,
        folder: Path,
        base: str | Callable[[], tuple[Any, Any]],
    ) -> None:
        self.name, self.method, self.data, self.settings = name, method, data, settings
        self.folder = folder / name.replace(" ", "_")
        torch.manual_seed(0)
        self.model = self._model(base)
        without = method in WITHOUT_GRAPH
        self.sampler = EgoTextSampler(0 if without else settings.num_neighbors, num_hops=settings.num_hops)
        self.store: TokenStore | None = None
        self.train = self.egos(some_nodes(data.train_mask, settings.train_nodes))
        self.store = self.train.to_graphs.store
        self.validation = some_nodes(data.val_mask, settings.validation_nodes)
        self.test = some_nodes(data.test_mask, settings.test_nodes)

    def _model(self, base: str | Callable[[], tuple[Any, Any]]) -> TextGraphLM:
        lora = LoraConfig(r=self.settings.rank, lora_alpha=2 * self.settings.rank, lora_dropout=0.05)
        options: dict[str, Any] = {"lora": None if self.method == "zero-shot" else lora}
        kind: type[TextGraphLM] = GTLM
        if self.method == "graph tokens":
            kind = GraphTokenLM
            options["channels"] = self.data.x.size(1)
        elif self.method != "gtlm":
            options["biases"] = ()
        made = (
            kind(*base(), **options) if callable(base) else kind.from_pretrained(base, dtype=torch.bfloat16, **options)
        )
        return made.to(device())

    def egos(self, nodes: Tensor) -> EgoTextDataset:
        steps: dict[Method, list[Any]] = {
            "gtlm": [AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)],
            "serialized graph": [SerializeGraph(self.model.tokenizer, merge_reciprocal=True)],
        }
        data = copy.copy(self.data)
        if "text_edges" in data:
            del data["text_edges"]
        return self.sampler.dataset(
            data,
            nodes,
            tokenizer=self.model.tokenizer,
            store=self.store,
            question=self.settings.question,
            max_target_tokens=self.settings.max_target_tokens,
            max_neighbor_tokens=self.settings.max_neighbor_tokens,
            transform=T.Compose(steps.get(self.method, [])),
        )

    def scores(self, nodes: Tensor, progress: str | None = None) -> Tensor:
        """Log-probabilities of the class names. Shapes: **nodes** (n,); **returns** (n, C)."""
        return class_scores(self.model, self.egos(nodes), self.data.class_names, batch_size=32, progress=progress)

    def accuracy(self, nodes: Tensor) -> float:
        return float((self.scores(nodes).argmax(-1) == self.data.y[nodes]).float().mean())

    def optimizer(self) -> torch.optim.Optimizer:
        settings, model = self.settings, self.model
        own = settings.projector_lr if isinstance(model, GraphTokenLM) else settings.bias_lr
        return torch.optim.AdamW(model.param_groups(settings.lr, own))  # type: ignore[operator]

    def run(self, resume: bool) -> dict[str, Any]:
        """Trains, answers and saves; a finished job is read back.

        Returns:
            ``accuracy`` and ``predicted`` on the test nodes, ``validation`` accuracy of the parameters used, number of
            ``trained`` parameters, ``seconds`` of training since the last start, and its ``history``.

        Raises:
            Interrupted: After Ctrl-C or SIGTERM; goes on with **resume**.
        """
        settings, result = self.settings, self.folder / "result.json"
        told: dict[str, Any] | None = finished(result, resume, asdict(settings))
        if told is not None:
            return told
        begin, history = time.perf_counter(), []
        if self.method != "zero-shot":
            config = TrainConfig(epochs=settings.epochs, batch_size=settings.batch_size, save_every=20)
            steps = config.epochs * -(-len(self.train) // config.batch_size)
            config = replace(config, validate_every=max(1, steps // settings.validations))
            trainer = Trainer(
                self.model, self.train, self.optimizer(), config, self.folder,
                lambda _: self.accuracy(self.validation), self.name,
            )  # fmt: skip
            history = trainer.run(resume)
        seconds = time.perf_counter() - begin
        scores = raw = self.scores(self.test, f"testing {self.name}")
        told = {"seconds": seconds, "history": history, "settings": asdict(settings)}
        if self.method == "zero-shot":
            scores = raw - self.scores(self.validation, f"prior of {self.name}").mean(0)
            told["raw_accuracy"] = self._right(raw.argmax(-1))
        else:
            told["validation"] = max(row["score"] for row in history if "score" in row)
        told |= {"accuracy": self._right(scores.argmax(-1)), "predicted": scores.argmax(-1).tolist()}
        told["trained"] = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.method != "zero-shot" and self.model._source is not None:
            self.model.save_pretrained(self.folder / "model")
        result.write_text(json.dumps(told))
        return told

    def _right(self, predicted: Tensor) -> float:
        return float((predicted == self.data.y[self.test]).float().mean())

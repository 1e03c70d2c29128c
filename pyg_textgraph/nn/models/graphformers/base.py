"""What all text-graph encoders share: embedding a graph, searching it, saving and loading."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.data import Data
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.atomic import reading_folder, saving_file, saving_folder
from pyg_textgraph.data import NeighborBatch, PackedTexts, TokenStore, node_texts
from pyg_textgraph.data.tokenization import tokenize_texts
from pyg_textgraph.nn.graphformers_layer import GraphFormersLayer
from pyg_textgraph.nn.models.graphformers.cache import NodeCache
from pyg_textgraph.nn.models.graphformers.retrieval import IndexBackend, TextIndex
from pyg_textgraph.nn.modes import evaluating
from pyg_textgraph.nn.text_encoders import encoder_steps
from pyg_textgraph.pretrained import load_tensors
from pyg_textgraph.sampling import NeighborTextSampler
from pyg_textgraph.sampling.neighbors import add_ends, text_ends

_CONFIG, _WEIGHTS, _ENCODER = "text_graph_encoder.json", "graph.safetensors", "encoder"


class TextGraphEncoder(nn.Module, ABC):
    """A text encoder that embeds nodes by their own texts and their neighbours'.

    Args:
        encoder: Any BERT-like model of :func:`~pyg_textgraph.nn.text_encoders.encoder_steps`.
        tokenizer: Needed to embed graphs of texts and to search for a text.
    """

    def __init__(self, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        super().__init__()
        self.steps = encoder_steps(encoder)
        self.encoder, self.tokenizer = encoder, tokenizer
        # a tuple: the encoder owns these modules already
        self.layers = tuple(GraphFormersLayer(self.steps, i) for i in range(len(self.steps.layers)))
        self.index: TextIndex | None = None
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler.requires_grad_(False)  # not used: DDP waits for gradients of all that want one

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @property
    def can_cache(self) -> bool:
        """Whether a neighbour's states depend on its own text only."""
        return True

    @property
    @abstractmethod
    def states_per_node(self) -> int:
        """How many states of a neighbour a centre looks at."""

    @abstractmethod
    def forward(self, batch: NeighborBatch) -> Tensor:
        """The embeddings of the centres, (C, d)."""

    @abstractmethod
    def encode_nodes(self, texts: PackedTexts) -> Tensor:
        """What centres need to know of neighbours: depends on a neighbour's own text only. Shapes: (n, S, d)."""

    @abstractmethod
    def encode_centres(self, texts: PackedTexts, states: Tensor, valid: Tensor) -> Tensor:
        """The embeddings of centres from their texts and the states of their neighbours.

        Shapes:
            - **states** (C, K, S, d) from :meth:`encode_nodes`; **valid** (C, K) bool
            - **returns** (C, d)
        """

    def sampler(
        self, data: Data, num_neighbors: int = 5, max_tokens: int | None = None, **kwargs: Any
    ) -> NeighborTextSampler:
        """A sampler over a graph of texts; **kwargs** as for :class:`~pyg_textgraph.sampling.NeighborTextSampler`."""
        tokenizer = self._tokenizer("sampler")
        store = TokenStore.from_texts(node_texts(data), tokenizer, kwargs.pop("empty", "error"))
        kwargs.setdefault("disjoint", not self.can_cache)
        if data.edge_index is None:
            raise ValueError(f"{type(self).__name__}: the graph has no 'edge_index'")
        return NeighborTextSampler(store, data.edge_index, tokenizer, num_neighbors, max_tokens, **kwargs)

    @torch.no_grad()
    def cache(
        self,
        sampler: NeighborTextSampler,
        nodes: Tensor | None = None,
        *,
        path: str | Path | None = None,
        batch_size: int = 256,
        progress: bool = False,
    ) -> NodeCache:
        """The states of nodes, each computed once.

        Args:
            sampler: Has the texts.
            nodes: Which; all by default. Others stay 0.
            path: A safetensors file to be written and memory-mapped, there once it is full; in memory by default.
            batch_size: Texts at a time.
            progress: Whether to show a progress bar.
        """
        shape = (len(sampler.store), self.states_per_node, self.steps.hidden_size)
        nodes = torch.arange(len(sampler.store)) if nodes is None else nodes
        with evaluating(self), nullcontext() if path is None else saving_file(path) as part:
            cache = NodeCache.allocate(shape, self.encoder.dtype, part)
            for some in tqdm(nodes.split(batch_size), "encoding nodes", disable=not progress):
                cache[some] = self.encode_nodes(sampler.texts(some).to(self.device))
        return cache

    @torch.no_grad()
    def embed(
        self,
        data: Data | NeighborTextSampler,
        nodes: Tensor | None = None,
        *,
        cache: NodeCache | None = None,
        batch_size: int = 256,
        progress: bool = False,
        backend: IndexBackend = "torch",
        **kwargs: Any,
    ) -> TextIndex:
        """Embeds nodes of a graph and keeps the index for :meth:`search`.

        Every neighbour is encoded once, so a whole graph costs two passes over its texts however many neighbours are
        looked at.

        Args:
            data: A graph of texts, or a sampler over one.
            nodes: Which nodes; all by default.
            cache: States of the graph's nodes; computed here by default.
            batch_size: Texts at a time.
            progress: Whether to show a progress bar.
            backend: See :class:`TextIndex`.
            **kwargs: As for :meth:`sampler`, if **data** is a graph.
        """
        sampler = data if isinstance(data, NeighborTextSampler) else self.sampler(data, **kwargs)
        nodes = (torch.arange(len(sampler.store)) if nodes is None else nodes).unique()
        parts = [_wide(torch.empty(0, self.steps.hidden_size, dtype=self.encoder.dtype))]
        found = sampler.neighbors(nodes)  # [n, K]
        if cache is None and self.can_cache:
            cache = self.cache(sampler, found[found >= 0].unique(), batch_size=batch_size, progress=progress)
        with evaluating(self):
            for i in tqdm(torch.arange(len(nodes)).split(batch_size), "embedding", disable=not progress):
                if cache is None:
                    batch = sampler(nodes[i])
                    parts.append(_wide(self(batch.to(self.device))).cpu())
                else:
                    parts.append(_wide(self._embed_cached(sampler, nodes[i], found[i], cache)).cpu())
        self.index = TextIndex(torch.cat(parts), nodes, backend)
        return self.index

    def _embed_cached(self, sampler: NeighborTextSampler, nodes: Tensor, neighbors: Tensor, cache: NodeCache) -> Tensor:
        texts = sampler.texts(nodes, num_centres=len(nodes)).to(self.device)
        states = cache[neighbors.clamp(min=0)].to(self.device)
        return self.encode_centres(texts, states, (neighbors >= 0).to(self.device))

    @torch.no_grad()
    def search(self, query: int | str | Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
        """The **k** nodes of the last :meth:`embed` that fit best to a node, a text, or a vector.

        Args:
            query: A node (not among its own answers), a text (read without neighbours), or an embedding (d,).
            k: How many.

        Shapes: **returns** scores and nodes, (k,) each, best first

        Raises:
            RuntimeError: If nothing has been embedded.
        """
        if self.index is None:
            raise RuntimeError(f"{type(self).__name__}: there is nothing to search, call embed first")
        if isinstance(query, int):
            score, node = (x[0] for x in self.index.search(self.index.of(torch.tensor([query])), k + 1))
            other = node != query
            return score[other][:k], node[other][:k]
        vector = self._embed_text(query) if isinstance(query, str) else query
        score, node = self.index.search(_wide(vector.view(1, -1)).cpu(), k)
        return score[0], node[0]

    def _embed_text(self, text: str) -> Tensor:
        tokenizer = self._tokenizer("search")
        ids, count = tokenize_texts([text], tokenizer)
        limit = self.steps.config.max_position_embeddings - 4
        ids, count = ids.long()[:limit], count.clamp(max=limit)
        packed = PackedTexts.pack(*add_ends(ids, count, *text_ends(tokenizer)), num_centres=1)
        nothing = torch.full((1, 0), -1)
        with evaluating(self):
            return self(NeighborBatch(packed, nothing, torch.tensor([-1]), disjoint=True).to(self.device))

    def _tokenizer(self, what: str) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(
                f"{type(self).__name__}: {what} needs a tokenizer; pass tokenizer= when you make the model"
            )
        return self.tokenizer

    def graph_parameters(self) -> dict[str, nn.Parameter]:
        """All parameters but the encoder's."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("encoder.")}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments that make this model again, but for the encoder and the tokenizer."""

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the encoder, adapters merged into it, the tokenizer, the graph part, and settings: all of them or, if
        killed, none."""
        told = {"model": type(self).__name__, "settings": self.settings(), "tokenizer": self.tokenizer is not None}
        with saving_folder(folder) as new:
            encoder: Any = self.encoder
            if isinstance(encoder, PeftModel):
                encoder = copy.deepcopy(encoder).merge_and_unload()
            encoder.save_pretrained(str(new / _ENCODER))
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(str(new / _ENCODER))
            save_file({name: p.detach().contiguous() for name, p in self.graph_parameters().items()}, new / _WEIGHTS)
            (new / _CONFIG).write_text(json.dumps(told, indent=1))

    @classmethod
    def from_pretrained(cls, name: str | Path, **settings: Any) -> Self:
        """Loads a saved model, or puts a new one around a text encoder from the Hub or a folder; in evaluation mode, as
        Hugging Face's.

        Raises:
            ValueError: If the folder holds another model, or **settings** are given for a saved one.
        """
        with reading_folder(name) as folder:
            return cls._load(folder, name, settings).eval()

    @classmethod
    def _load(cls, folder: Path, name: str | Path, settings: dict[str, Any]) -> Self:
        if not (folder / _CONFIG).is_file():
            return cls(AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name), **settings)
        told = json.loads((folder / _CONFIG).read_text())
        if told["model"] != cls.__name__ or settings:
            raise ValueError(
                f"{cls.__name__}: {folder} holds a saved {told['model']}, expected {cls.__name__}, and no settings"
            )
        where = str(folder / _ENCODER)
        tokenizer = AutoTokenizer.from_pretrained(where) if told["tokenizer"] else None
        model = cls(AutoModel.from_pretrained(where), tokenizer, **told["settings"])
        saved, own = load_tensors(folder / _WEIGHTS), model.graph_parameters()
        if saved.keys() != own.keys():
            raise ValueError(
                f"{cls.__name__}: {folder / _WEIGHTS} holds {sorted(saved)[:3]}, expected {sorted(own)[:3]}"
            )
        with torch.no_grad():
            for key, parameter in own.items():
                parameter.copy_(saved[key])
        return model


def _wide(x: Tensor) -> Tensor:
    """At least float32, in which an index compares."""
    return x.to(torch.promote_types(x.dtype, torch.float32))

"""GraphFormers: a text encoder whose layers look at the neighbours' states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.data import NeighborBatch, PackedTexts
from pyg_textgraph.nn.graphformers_layer import NeighborhoodAttention
from pyg_textgraph.nn.models.graphformers.base import TextGraphEncoder
from pyg_textgraph.nn.models.graphformers.config import GraphFormersConfig


class GraphFormers(TextGraphEncoder):
    r"""A graph step nested in every layer of a text encoder (`Yang et al., 2021 <https://arxiv.org/abs/2105.02605>`_).

    In every layer but the first, the first-token states of a centre and its neighbours go through
    :class:`~pyg_textgraph.nn.graphformers_layer.NeighborhoodAttention`, and what comes out is one more key and value
    of the centre's tokens. A centre's embedding is the last state of its first token; so neighbours skip the last
    layer.

    Args:
        encoder: Any BERT-like model of :func:`~pyg_textgraph.nn.text_encoders.encoder_steps`.
        tokenizer: Needed to embed graphs of texts and to search for a text.
        config: By default the paper's model; single fields can be given as **kwargs** instead.

    Shapes: **batch** with C centres -> (C, d)

    Raises:
        ValueError: If the model is bidirectional and neighbours share texts, or a cache is asked of it.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        config: GraphFormersConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, tokenizer)
        self.config = config if config is not None else GraphFormersConfig(**kwargs)
        count = 1 if self.config.shared_attention else len(self.layers) - 1
        self.graph_attention = nn.ModuleList(
            NeighborhoodAttention(self.steps.hidden_size, self.steps.num_heads, self.config.relation_bias)
            for _ in range(count)
        ).to(self.device, encoder.dtype)

    @property
    def can_cache(self) -> bool:
        return not self.config.bidirectional

    @property
    def states_per_node(self) -> int:
        return len(self.layers) - 1

    def settings(self) -> dict[str, Any]:
        return self.config.to_dict()

    def forward(self, batch: NeighborBatch) -> Tensor:
        texts, members = batch.texts, batch.members
        if self.config.bidirectional and not batch.disjoint:
            raise ValueError("GraphFormers: a bidirectional model needs batches of a sampler with disjoint=True")
        place = texts.first[members.clamp(min=0)]  # [C, 1 + K]
        return self._run(texts, members, lambda _, x: x[place])

    def encode_nodes(self, texts: PackedTexts) -> Tensor:
        if self.config.bidirectional:
            raise ValueError("GraphFormers: neighbours of a bidirectional model depend on the centre, nothing to cache")
        x = self.steps.embed(texts.input_ids, texts.position)
        bias = self.steps.position_bias(texts.max_length)
        states = []
        for layer in self.layers[:-1]:
            x = layer(x, texts, position_bias=bias)[0]
            states.append(x[texts.first])
        return torch.stack(states, dim=1) if states else x.new_empty(texts.num_texts, 0, x.size(1))

    def encode_centres(self, texts: PackedTexts, states: Tensor, valid: Tensor) -> Tensor:
        if not texts.num_centres == texts.num_texts == len(valid):
            raise ValueError(
                f"GraphFormers: {texts.num_centres} of {texts.num_texts} texts are centres, expected all {len(valid)}"
            )
        centre = torch.arange(len(valid), device=valid.device)[:, None]
        members = torch.cat([centre, torch.where(valid, 0, -1)], dim=1)  # the neighbours' texts are not here
        return self._run(texts, members, lambda i, x: torch.cat([x[texts.first, None], states[:, :, i - 1]], dim=1))

    def _run(self, texts: PackedTexts, members: Tensor, states_at: Callable[[int, Tensor], Tensor]) -> Tensor:
        """All layers.

        Args:
            texts: Centres first.
            members: Texts of each neighbourhood, −1 where there is none.
            states_at: First-token states (C, 1 + K, d) of the members before a layer, given all tokens' states.
        """
        bias = self.steps.position_bias(texts.max_length)
        x = self.steps.embed(texts.input_ids, texts.position)
        state: Tensor | None = None  # of the graph vectors themselves, in packed order
        for i, layer in enumerate(self.layers[:-1]):
            graph = self._graph_vectors(i, x, texts, members, states_at, state)
            x, state = layer(x, texts, graph, position_bias=bias, symmetric=self.config.symmetric)
        last = len(self.layers) - 1
        graph = self._graph_vectors(last, x, texts, members, states_at, state)
        centres = texts.centres()
        return self.steps.final(
            self.layers[last].first_tokens(
                x[: centres.input_ids.numel()],
                centres,
                None if graph is None else graph[: len(members)],
                position_bias=bias,
            )
        )

    def _graph_vectors(
        self,
        index: int,
        x: Tensor,
        texts: PackedTexts,
        members: Tensor,
        states_at: Callable[[int, Tensor], Tensor],
        before: Tensor | None,
    ) -> Tensor | None:
        """One per centre, or per text in a bidirectional model, in packed order; none before the first layer.

        Args:
            index: Of the layer.
            x: All tokens' states.
            texts: As for :meth:`_run`.
            members: As for :meth:`_run`.
            states_at: As for :meth:`_run`.
            before: What the layer before made of its graph vectors, in a symmetric model.
        """
        if index == 0:
            return None
        valid = members >= 0
        attention = self.graph_attention[0 if self.config.shared_attention else index - 1]
        graph: Tensor = attention(states_at(index, x), valid, everyone=self.config.bidirectional)
        if self.config.bidirectional:
            # every text stands in one neighbourhood
            text, graph = members[valid], graph[valid]
            graph = graph[text.argsort()]
        graph = graph[texts.order[: len(graph)]]
        return graph if before is None else graph + before

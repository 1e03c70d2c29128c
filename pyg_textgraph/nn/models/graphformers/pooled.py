"""What GraphFormers is measured against: encode texts first, look at neighbours afterwards."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.data import NeighborBatch, PackedTexts
from pyg_textgraph.nn.graphformers_layer import NeighborhoodAttention
from pyg_textgraph.nn.models.graphformers.base import TextGraphEncoder

Pooling = Literal["text", "mean", "max", "attention", "gat"]


class PooledTextEncoder(TextGraphEncoder):
    r"""A cascade: the last first-token states of a centre and its neighbours, pooled.

    The embedding is :math:`W [h_c \,\|\, p]`, where :math:`p` is, by **pooling**, the neighbours' mean, the largest of
    their transformed states (GraphSAGE's :math:`\max \mathrm{ReLU}(W_p h_j + b)`), multi-head attention or a graph
    attention network's sum over centre and neighbours. ``"text"`` is :math:`h_c` alone. Without neighbours the mean
    and the maximum are 0. Untrained, :math:`W` passes :math:`h_c` on.

    Args:
        encoder: Any BERT-like model of :func:`~pyg_textgraph.nn.text_encoders.encoder_steps`.
        tokenizer: Needed to embed graphs of texts and to search for a text.
        pooling: See above.

    Shapes: **batch** with C centres -> (C, d)

    Raises:
        ValueError: If **pooling** is unknown.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        pooling: Pooling = "max",
    ) -> None:
        super().__init__(encoder, tokenizer)
        if pooling not in get_args(Pooling):
            raise ValueError(f"PooledTextEncoder: 'pooling' is {pooling!r}, expected one of {get_args(Pooling)}")
        self.pooling = pooling
        size, heads = self.steps.hidden_size, self.steps.num_heads
        self.pool: nn.Module | None = None
        if pooling == "max":
            self.pool = nn.Linear(size, size)
            nn.init.eye_(self.pool.weight)
            nn.init.zeros_(self.pool.bias)
        elif pooling == "attention":
            self.pool = NeighborhoodAttention(size, heads)
        elif pooling == "gat":
            self.pool = GATConv(size, size // heads, heads, add_self_loops=False)
        self.combine: nn.Linear | None = None
        if pooling != "text":
            self.combine = nn.Linear(2 * size, size, bias=False)
            with torch.no_grad():
                self.combine.weight.copy_(torch.eye(size, 2 * size))
        self.to(self.device, encoder.dtype)

    @property
    def states_per_node(self) -> int:
        return 1

    def settings(self) -> dict[str, Any]:
        return {"pooling": self.pooling}

    def forward(self, batch: NeighborBatch) -> Tensor:
        texts = batch.texts if self.combine is not None else batch.texts.centres()
        states = self._last_states(texts)
        neighbors = batch.neighbors.clamp(min=0) if self.combine is not None else batch.neighbors[:, :0]
        return self._combine(states[: batch.num_centres], states[neighbors], batch.neighbors >= 0)

    def encode_nodes(self, texts: PackedTexts) -> Tensor:
        return self._last_states(texts)[:, None]

    def encode_centres(self, texts: PackedTexts, states: Tensor, valid: Tensor) -> Tensor:
        return self._combine(self._last_states(texts), states[:, :, 0], valid)

    def _last_states(self, texts: PackedTexts) -> Tensor:
        x = self.steps.embed(texts.input_ids, texts.position)
        bias = self.steps.position_bias(texts.max_length)
        for layer in self.layers[:-1]:
            x = layer(x, texts, position_bias=bias)[0]
        return self.steps.final(self.layers[-1].first_tokens(x, texts, position_bias=bias))

    def _combine(self, centre: Tensor, neighbors: Tensor, valid: Tensor) -> Tensor:
        """Shapes: (C, d), (C, K, d), (C, K) -> (C, d)."""
        if self.combine is None:
            return centre
        return self.combine(torch.cat([centre, self._pool(centre, neighbors, valid)], dim=-1))

    def _pool(self, centre: Tensor, neighbors: Tensor, valid: Tensor) -> Tensor:
        outside = ~valid[..., None]
        if self.pooling == "mean":
            return neighbors.masked_fill(outside, 0).sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
        assert self.pool is not None
        if self.pooling == "max":
            if neighbors.size(1) == 0:
                return torch.zeros_like(centre)
            return self.pool(neighbors).relu().masked_fill(outside, 0).amax(1)
        members = torch.cat([centre[:, None], neighbors], dim=1)  # [C, 1 + K, d]
        valid = torch.cat([valid.new_ones(len(valid), 1), valid], dim=1)
        if self.pooling == "attention":
            return self.pool(members, valid)
        into, place = valid.nonzero().T  # one edge per member, to its centre
        return self.pool(
            (members[into, place], centre), torch.stack([torch.arange(len(into), device=into.device), into])
        )

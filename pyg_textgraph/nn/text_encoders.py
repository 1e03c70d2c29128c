"""The steps of Hugging Face text encoders, one family each, on packed tokens.

A Hugging Face layer takes padded batches and hides its keys and values. Here its own modules are called in its own
order, token by token, and whoever calls decides what attends to what.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel


class EncoderSteps(ABC):
    """What a family of encoders does apart from attention itself.

    Shapes: **x** (n, d) are states of any n tokens; queries, keys and values (n, H, D).
    """

    def __init__(self, encoder: PreTrainedModel) -> None:
        self.encoder: Any = encoder
        self.config: Any = encoder.config
        self.hidden_size: int = self.config.hidden_size
        self.num_heads: int = self.config.num_attention_heads
        self.head_dim = self.hidden_size // self.num_heads

    @property
    def layers(self) -> Any:
        """The encoder's layers."""
        return self.encoder.encoder.layer

    @abstractmethod
    def embed(self, input_ids: Tensor, position: Tensor) -> Tensor:
        """The states before the first layer; **position** counts from 0 in every text. Shapes: (T,), (T,) -> (T, d)."""

    def project(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a layer, without positions."""
        return self.queries(layer, x), *self.keys_values(layer, x)

    @abstractmethod
    def queries(self, layer: int, x: Tensor) -> Tensor:
        """Queries alone."""

    @abstractmethod
    def keys_values(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone."""

    @abstractmethod
    def finish(self, layer: int, attended: Tensor, x: Tensor) -> Tensor:
        """From attention's result (n, H, D) and the layer's input to the layer's output."""

    @abstractmethod
    def attention_dropout(self, layer: int) -> float:
        """The share of attention weights that is dropped now."""

    def rotate(self, layer: int, q: Tensor, k: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with rotary positions, where the family has them."""
        return q, k

    def position_bias(self, length: int) -> Tensor | None:
        """What a pair of places adds to scores, (H, length, length), the same in all layers."""
        return None

    def window(self, layer: int) -> int | None:
        """How many places apart tokens see each other in a local layer."""
        return None

    def final(self, x: Tensor) -> Tensor:
        """What follows the last layer."""
        return x

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim))


class BertSteps(EncoderSteps):
    """BERT, RoBERTa and what is built like them."""

    def embed(self, input_ids: Tensor, position: Tensor) -> Tensor:
        embeddings = self.encoder.embeddings
        if self.config.model_type not in ("bert", "electra"):  # RoBERTa numbers places after the padding id
            position = position + embeddings.padding_idx + 1
        x: Tensor = embeddings(input_ids=input_ids[None], position_ids=position[None])[0]
        return self.encoder.embeddings_project(x) if hasattr(self.encoder, "embeddings_project") else x

    def queries(self, layer: int, x: Tensor) -> Tensor:
        return self._heads(self.layers[layer].attention.self.query(x))

    def keys_values(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.layers[layer].attention.self
        return self._heads(own.key(x)), self._heads(own.value(x))

    def finish(self, layer: int, attended: Tensor, x: Tensor) -> Tensor:
        own = self.layers[layer]
        middle = own.attention.output(attended.flatten(1), x)
        return own.output(own.intermediate(middle), middle)

    def attention_dropout(self, layer: int) -> float:
        dropout = self.layers[layer].attention.self.dropout
        return dropout.p if dropout.training else 0.0


class MPNetSteps(EncoderSteps):
    """MPNet: a bias per relative place, shared by all layers."""

    def embed(self, input_ids: Tensor, position: Tensor) -> Tensor:
        embeddings = self.encoder.embeddings
        return embeddings(input_ids=input_ids[None], position_ids=position[None] + embeddings.padding_idx + 1)[0]

    def queries(self, layer: int, x: Tensor) -> Tensor:
        return self._heads(self.layers[layer].attention.attn.q(x))

    def keys_values(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.layers[layer].attention.attn
        return self._heads(own.k(x)), self._heads(own.v(x))

    def finish(self, layer: int, attended: Tensor, x: Tensor) -> Tensor:
        own = self.layers[layer]
        attention = own.attention
        middle = attention.LayerNorm(attention.dropout(attention.attn.o(attended.flatten(1))) + x)
        return own.output(own.intermediate(middle), middle)

    def attention_dropout(self, layer: int) -> float:
        dropout = self.layers[layer].attention.attn.dropout
        return dropout.p if dropout.training else 0.0

    def position_bias(self, length: int) -> Tensor:
        weight = self.encoder.encoder.relative_attention_bias.weight
        return self.encoder.encoder.compute_position_bias(weight.new_empty(1, length, 1))[0]


class ModernBertSteps(EncoderSteps):
    """ModernBERT: norms before, rotary positions, and local attention in most layers."""

    @property
    def layers(self) -> Any:
        return self.encoder.layers

    def embed(self, input_ids: Tensor, position: Tensor) -> Tensor:
        return self.encoder.embeddings(input_ids=input_ids[None])[0]

    def project(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = self.layers[layer]
        q, k, v = own.attn.Wqkv(own.attn_norm(x)).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(1)
        return q, k, v

    def queries(self, layer: int, x: Tensor) -> Tensor:
        return self._heads(self._part(layer, x, slice(None, self.hidden_size)))

    def keys_values(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self._part(layer, x, slice(self.hidden_size, None)).chunk(2, dim=-1)
        return self._heads(k), self._heads(v)

    def _part(self, layer: int, x: Tensor, rows: slice) -> Tensor:
        own = self.layers[layer]
        if type(own.attn.Wqkv) is not nn.Linear:  # under adapters there are no rows to choose from
            return own.attn.Wqkv(own.attn_norm(x))[:, rows]
        weight, bias = own.attn.Wqkv.weight[rows], own.attn.Wqkv.bias
        return F.linear(own.attn_norm(x), weight, None if bias is None else bias[rows])

    def finish(self, layer: int, attended: Tensor, x: Tensor) -> Tensor:
        own = self.layers[layer]
        x = x + own.attn.out_drop(own.attn.Wo(attended.flatten(1)))
        return x + own.mlp(own.mlp_norm(x))

    def attention_dropout(self, layer: int) -> float:
        attention = self.layers[layer].attn
        return attention.attention_dropout if attention.training else 0.0

    def rotate(self, layer: int, q: Tensor, k: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.encoder.rotary_emb(q, position[None], self.layers[layer].attention_type)  # [1, T, D]
        cos, sin = cos[0, :, None], sin[0, :, None]
        return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin

    def window(self, layer: int) -> int | None:
        return self.config.sliding_window if self.layers[layer].attention_type == "sliding_attention" else None

    def final(self, x: Tensor) -> Tensor:
        return self.encoder.final_norm(x)


FAMILIES: dict[str, type[EncoderSteps]] = {
    "bert": BertSteps,
    "electra": BertSteps,
    "roberta": BertSteps,
    "xlm-roberta": BertSteps,
    "camembert": BertSteps,
    "mpnet": MPNetSteps,
    "modernbert": ModernBertSteps,
}


def encoder_steps(encoder: PreTrainedModel) -> EncoderSteps:
    """The steps of an encoder.

    Raises:
        ValueError: If the encoder is of no family above, or a decoder.
    """
    kind = encoder.config.model_type
    if kind not in FAMILIES:
        raise ValueError(f"encoder_steps: the encoder is a {kind!r} model, expected one of {sorted(FAMILIES)}")
    if getattr(encoder.config, "is_decoder", False):
        raise ValueError("encoder_steps: the encoder's config says 'is_decoder', expected a bidirectional encoder")
    return FAMILIES[kind](encoder)


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)

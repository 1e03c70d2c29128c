"""The graph transformer language model: a decoder that reads a graph of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from pyg_textgraph.data import TextAttributedData, TokenLayout
from pyg_textgraph.nn.bias import GraphBias, PairFeatures
from pyg_textgraph.nn.models.gtlm.config import GTLMConfig
from pyg_textgraph.nn.models.gtlm.node_attention import NodeAttentionContext
from pyg_textgraph.nn.models.gtlm.visibility import visible_pairs
from pyg_textgraph.nn.models.text_graph_lm import TextGraphLM
from pyg_textgraph.nn.models.text_graph_lm.attention import AttentionContext, PackedContext
from pyg_textgraph.nn.modes import evaluating


@dataclass
class GTLMOutput(ModelOutput):
    """What :class:`GTLM` returns.

    Shapes:
        - **loss** () mean cross-entropy over the supervised tokens, None without labels
        - **logits** (S, V), see :meth:`GTLM.forward`
        - **labels** (S,) the token each row of **logits** should predict, None without labels
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    labels: Tensor | None = None


class GTLM(TextGraphLM):
    r"""Graph transformer language model (arXiv 2605.10247) around any Hugging Face decoder with rotary positions.

    The decoder reads the texts of all nodes at once. Every node's positions start at 0; the texts of context nodes see
    each other in both directions; the target, whose text is continued, comes last and is read causally. What the graph
    looks like enters each attention score as a learned bias per pair of nodes, :attr:`graph_bias`. The order of the
    context nodes changes nothing, and a graph of one target node gives the language model's own logits.

    The language model is frozen; **lora** adds trainable adapters. Loading, saving, class scores and generation are
    those of :class:`TextGraphLM`.

    Args:
        base_model: A decoder with its language-model head, or a :class:`~peft.PeftModel` of one. Its attention is
            switched to graph attention in place.
        tokenizer: Its tokenizer; needed for names and texts in :meth:`classify` and :meth:`generate`.
        lora: Adapters to add, on all linear layers unless ``target_modules`` says otherwise.
        config: Biases, visibility and backend.
        new_tokens: Tokens to add to the tokenizer, each with words that mean the same: its embedding starts as the mean
            of theirs and trains with the adapters, which hold it.
        **kwargs: Single fields of :class:`GTLMConfig`.

    Raises:
        ValueError: If the architecture cannot work, or new tokens have no adapters to train with.

    Example:
        >>> model = GTLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct", lora=LoraConfig(r=32, lora_alpha=64))
        >>> model.train()(batch).loss.backward()
    """

    kind = "gtlm"
    own_module = "graph_bias"
    config_class = GTLMConfig
    _sequence = "a node"

    graph_bias: GraphBias

    def _make_own(self, decoder: PreTrainedModel) -> GraphBias:
        return GraphBias(self.text_config.num_hidden_layers, self.text_config.num_attention_heads, self.config)

    def param_groups(self, lr: float, bias_lr: float, weight_decay: float = 0.1) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer: adapters (and whatever else of the language model trains), and biases."""
        return self._groups(lr, bias_lr, weight_decay)

    def forward(self, batch: Data, logits: Literal["supervised", "all"] = "supervised") -> GTLMOutput:
        """Reads a batch of text graphs.

        Args:
            batch: A :class:`~pyg_textgraph.data.TextAttributedData` or a PyG batch of them, with the features that the
                enabled biases need.
            logits: ``"supervised"`` computes logits only where a supervised token is predicted (without any: at the
                last token of each graph, and there is no loss), ``"all"`` at every token in packed order.

        Raises:
            ValueError: If a feature is missing, a token or position is out of range, or the first token of a target is
                supervised.
        """
        layout = TokenLayout.from_data(batch)
        predicts, labels = None, None
        packed = batch.labels[layout.order] if "labels" in batch else layout.order.new_full(layout.order.shape, -100)
        place = (packed >= 0).nonzero().view(-1)
        if place.numel():
            if bool((layout.position[place] == 0).any()):
                raise ValueError("GTLM: 'labels' supervises the first token of a target, which nothing predicts")
            predicts, labels = place - 1, packed[place]
        if logits == "all":
            out = self._read(batch, layout, torch.arange(layout.num_tokens, device=layout.order.device))
            predicted = out if predicts is None else out[predicts]
        else:
            if predicts is None and bool((empty := layout.graph_ptr.diff() == 0).any()):
                raise ValueError(f"GTLM: graph {int(empty.nonzero()[0])} of the batch has no tokens, so no last one")
            out = predicted = self._read(batch, layout, layout.last if predicts is None else predicts)
        loss = None if labels is None else F.cross_entropy(predicted.float(), labels)
        return GTLMOutput(loss=loss, logits=out, labels=labels)

    def _context(self, batch: Data, layout: TokenLayout) -> PackedContext:
        if layout.num_tokens == 0:
            raise ValueError("GTLM: the batch has no tokens")
        if isinstance(batch, TextAttributedData):
            batch.validate()
        self._check_position(int(layout.position.max()))
        k_hop = self.config.k_hop
        pairs = None if k_hop is None else visible_pairs(batch, k_hop, self.config.through_target)
        dtype = next((p.dtype for p in self.graph_bias.parameters()), torch.float32)
        features = PairFeatures.from_batch(batch, self.config.biases, dtype, pairs=pairs)
        return PackedContext(layout, self.graph_bias, self.graph_bias.prepare(features), pairs, self.config.backend)

    def _read(self, batch: Data, layout: TokenLayout, at: Tensor, context: AttentionContext | None = None) -> Tensor:
        """The logits at some packed places. Shapes: **at** (S,); **returns** (S, V)."""
        input_ids = batch.input_ids[layout.order]
        self._check_tokens(input_ids)
        context = context or self._context(batch, layout)
        out = self._decoder(layout.position[None], context, input_ids=input_ids[None], logits_to_keep=at)
        return out.logits[0]

    @torch.no_grad()
    def node_attention(self, batch: Data) -> Tensor:
        """How the last token before each answer spreads its attention over the nodes of its graph.

        Compares every token with every other one: for looking at small graphs.

        Shapes:
            - **returns** (L, B, H, N) float32, sums over N to one; 0 where a graph has fewer nodes
        """
        layout = self._prefix_layout(batch)
        context = NodeAttentionContext(self._context(batch, layout))
        with evaluating(self):
            self._read(batch, layout, layout.last, context)
        return torch.stack([context.kept[layer] for layer in sorted(context.kept)])

    def _prefix_layout(self, batch: Data) -> TokenLayout:
        layout = TokenLayout.from_data(batch, answers=False)
        self._check_targets(batch, layout)
        return layout

    def _read_prefix(self, batch: Data, keep: bool = True) -> tuple[Tensor, PackedContext, Tensor]:
        layout = self._prefix_layout(batch)
        context = self._context(batch, layout)
        context.kept = {} if keep else None
        return self._read(batch, layout, layout.last, context), context, layout.node[layout.last]

    def extra_repr(self) -> str:
        return f"k_hop={self.config.k_hop}, backend={self.config.backend!r}"

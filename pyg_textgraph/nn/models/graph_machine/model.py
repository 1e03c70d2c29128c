"""The Graph Machine as a Hugging Face model."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer, StaticCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.graph_machine_layer import GraphMachineLayer
from pyg_textgraph.nn.models.graph_machine.config import GraphMachineConfig
from pyg_textgraph.nn.models.graph_machine.dense import DenseLayer, rotary
from pyg_textgraph.nn.sparse_edge_referral import History

# transformers 5.24 calls the cache by a new name
CACHE_NAME = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


@dataclass
class GraphMachineOutput:
    """Last features (B, n, d), the edges after every sparse layer if they were asked for, and the cache."""

    last_hidden_state: Tensor
    edges: tuple[SparseEdges, ...] | None
    cache: Cache | None


@dataclass
class GraphMachineLMOutput(CausalLMOutputWithPast):
    """What a causal language model of transformers returns, and the edges after every sparse layer if asked for."""

    edges: tuple[SparseEdges, ...] | None = None


class GraphMachinePreTrainedModel(PreTrainedModel):
    config_class = GraphMachineConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("GraphMachineLayer", "DenseLayer")
    _supports_sdpa = True


class GraphMachineModel(GraphMachinePreTrainedModel):
    """Embedding, sparse and dense layers, final norm; a Qwen3 checkpoint fits a model without sparse layers."""

    def __init__(self, config: GraphMachineConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(self._layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @staticmethod
    def _layer(config: GraphMachineConfig, layer: int) -> GraphMachineLayer | DenseLayer:
        if not config.sparse_layers[layer]:
            return DenseLayer(config)
        s1, s2, s3, s4 = config.budgets
        return GraphMachineLayer(
            config.hidden_size,
            config.intermediate_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.num_edges,
            (s1, s2, s3, s4),
            config.refresh_counts(layer),
            config.realign,
            config.temperature_kind,
            config.rms_norm_eps,
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool = False,
        cache: Cache | None = None,
        output_edges: bool = False,
    ) -> GraphMachineOutput:
        """Runs all layers.

        Args:
            input_ids: (B, n).
            attention_mask: (B, N) over cached and new tokens; zeros may stand to the left or right of a text.
            position_ids: (B, n); counted from the first token of each text by default.
            inputs_embeds: (B, n, d), instead of `input_ids`.
            use_cache: Whether to return a cache; none while activations are recomputed.
            cache: What earlier tokens left behind.
            output_edges: Whether to return the edges after every sparse layer.

        Raises:
            ValueError: If activations are to be recomputed with a cache, or by reentrant checkpointing, which loses
                gradients of edges; if the cache is a static one.
        """
        if isinstance(cache, StaticCache):  # shaped for keys and values, one of each per layer
            raise ValueError("GraphMachineModel: 'cache' is a StaticCache, expected a DynamicCache or none")
        if self._recompute:
            if cache is not None:
                raise ValueError("GraphMachineModel: got a 'cache' while activations are recomputed")
            if getattr(self._gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
                raise ValueError("GraphMachineModel: 'use_reentrant' is True, expected False: edges have gradients too")
            use_cache = False
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("GraphMachineModel: pass either 'input_ids' or 'inputs_embeds'")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and cache is None:
            cache = DynamicCache()
        past = cache.get_seq_length() if cache is not None else 0
        n = x.size(1)
        floor = _first_tokens(attention_mask)  # [B], or None
        if position_ids is None:
            position = torch.arange(past, past + n, device=x.device).unsqueeze(0)
            position_ids = position if floor is None else (position - floor.unsqueeze(-1)).clamp(min=0)
        rotation = rotary(position_ids, self.config.head_dim, self.config.rope_theta, x.dtype)
        visible = _visible(past, n, floor, x.device)
        window = SparseEdges.causal_window(n, self.config.num_edges, past=past, start=floor, device=x.device)
        window = SparseEdges(*(t.expand(x.size(0), n, -1, 1) for t in (window.index, window.weight)))
        edges, nearest, dense_refresh = window, window.nearest(self.config.input_refresh), None

        seen, slot = [], 0
        layer: DenseLayer | GraphMachineLayer
        for layer in self.layers:  # type: ignore[assignment]
            run = partial(self._gradient_checkpointing_func, layer.__call__) if self._recompute else layer
            if isinstance(layer, DenseLayer):
                x, refresh = run(x, rotation, visible, floor, _history(cache, slot))
                dense_refresh = refresh or dense_refresh
                slot += 1
            else:
                slots = range(slot, slot + layer.num_referrals + 1)
                histories = None if cache is None else [_history(cache, i) for i in slots]
                x, edges = run(x, edges, (nearest, dense_refresh), histories)
                seen.append(edges)
                slot = slots.stop
        return GraphMachineOutput(self.norm(x), tuple(seen) if output_edges else None, cache)

    @property
    def _recompute(self) -> bool:
        return self.gradient_checkpointing and self.training


class GraphMachineLM(GraphMachinePreTrainedModel, GenerationMixin):
    """Causal language model of the Graph Machine (GM-2, arXiv 2609.02881).

    Texts should start with a padding token, which early edges point to; it is part of the text. Where padding stands on
    the left of shorter texts of a batch, ``attention_mask`` says so, to :meth:`generate` as well.

    Example:
        >>> model = GraphMachineLM(GraphMachineConfig.preset("theia-k24-r3"))
        >>> model(input_ids, labels=input_ids).loss.backward()
        >>> model.generate(input_ids, max_new_tokens=20)
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: GraphMachineConfig) -> None:
        super().__init__(config)
        self.model = GraphMachineModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.loss_type = "ForCausalLM"
        self.post_init()

    def _prepare_attention_mask_for_generation(self, inputs_tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Without a mask there is no padding: transformers would hide the padding token that texts start with."""
        return torch.ones(inputs_tensor.shape[:2], dtype=torch.long, device=inputs_tensor.device)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cache: Cache | None = None,
        past_key_values: Cache | None = None,
        output_edges: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> GraphMachineLMOutput | tuple[Any, ...]:
        """As every causal language model of transformers; the cache is taken by its old and its new name.

        ``output_edges`` returns the edges after every sparse layer, which is where the model looks; other keyword
        arguments are the loss's.

        Shapes:
            - **input_ids**, **labels** (B, n), labels −100 where nothing is to be predicted
            - **returns** an output with loss and logits (B, n, vocabulary)

        Raises:
            ValueError: If hidden states or attentions are asked for.
        """
        for name, asked in (("output_hidden_states", output_hidden_states), ("output_attentions", output_attentions)):
            if asked:
                raise ValueError(f"GraphMachineLM: '{name}' is True, expected False; see 'output_edges'")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and labels is None
        out = self.model(
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds,
            use_cache,
            past_key_values if cache is None else cache,
            output_edges,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(out.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        kept_cache = {CACHE_NAME: out.cache if use_cache else None}
        found = GraphMachineLMOutput(loss=loss, logits=logits, edges=out.edges, **kept_cache)
        return found.to_tuple() if return_dict is False else found


def _first_tokens(attention_mask: Tensor | None) -> Tensor | None:
    """(B,) number of padding tokens on the left, or None if there are none."""
    if attention_mask is None:
        return None
    floor = (attention_mask.cumsum(-1) == 0).sum(-1)
    return floor if bool(floor.any()) else None


def _visible(past: int, n: int, floor: Tensor | None, device: torch.device) -> Tensor | None:
    """(B or 1, 1, n, N) which keys a dense layer sees, or None where plain causal attention says the same."""
    if floor is None and (past == 0 or n == 1):
        return None
    key, query = torch.arange(past + n, device=device), torch.arange(past, past + n, device=device).unsqueeze(-1)
    visible = (key <= query).view(1, 1, n, -1)
    if floor is None:
        return visible
    return visible & ((key >= floor.view(-1, 1, 1, 1)) | (key == query))  # a padding token sees itself: no empty rows


def _history(cache: Cache | None, slot: int) -> History | None:
    return None if cache is None else partial(_remember, cache, slot)


def _remember(cache: Cache, slot: int, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Appends two tables (B, n, c, d) to a slot of the cache, and returns all of both (B, N, c, d)."""
    while len(cache.layers) <= slot:
        cache.layers.append(DynamicLayer())
    tables = cache.update(first.flatten(-2), second.flatten(-2), slot)
    return tables[0].unflatten(-1, first.shape[-2:]), tables[1].unflatten(-1, second.shape[-2:])

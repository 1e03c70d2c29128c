"""How graph attention enters a Hugging Face decoder: by its attention interface, with one keyword argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from pyg_textgraph.data import TokenLayout
from pyg_textgraph.nn.modes import evaluating
from pyg_textgraph.ops.graph_attention import Backend, graph_attention

IMPLEMENTATION = "text_graph"


@dataclass(frozen=True)
class Scoring:
    """What a layer makes of products of queries and keys, and how far its tokens see."""

    scale: float | None
    softcap: float | None
    window: int | None

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores before the bias, float32. Shapes: **q** (*, L, D); **k** (*, S, D); **returns** (*, L, S)."""
        scale = q.size(-1) ** -0.5 if self.scale is None else self.scale
        a, b = q.flatten(0, -3), k.flatten(0, -3)
        # scaled within the product: by itself it may be more than half precision holds
        product = torch.baddbmm(a.new_empty(()), a, b.mT, beta=0, alpha=scale)
        score = product.float().view(*q.shape[:-1], -1)
        return score if self.softcap is None else self.softcap * torch.tanh(score / self.softcap)


class AttentionContext(Protocol):
    """What a forward pass tells every attention layer."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Shapes: **q** (B, H, T, D); **k**, **v** (B, H_kv, T, D); **returns** (B, T, H, D)."""
        ...


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    text_graph: AttentionContext | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function registered with :class:`transformers.AttentionInterface`."""
    if text_graph is None:
        raise ValueError(
            "this language model reads text graphs; call it through its GTLM or GraphTokenLM, or give it back its own "
            "attention with model.set_attn_implementation('sdpa')"
        )
    if kwargs.get("s_aux") is not None:
        raise ValueError(f"{type(module).__name__} has attention sinks, which graph attention does not support")
    layer: int = module.layer_idx  # type: ignore[assignment]
    return text_graph.attend(layer, query, key, value, Scoring(scaling, softcap, sliding_window)), None


AttentionInterface.register(IMPLEMENTATION, attention_function)


@dataclass
class PackedContext:
    """Attention over packed text graphs, of all nodes or of listed **pairs** (2, P); fills ``kept`` if it is there."""

    layout: TokenLayout
    graph_bias: Callable[[int, dict[str, Any]], Tensor | None]
    inputs: dict[str, Any]
    pairs: Tensor | None = None
    backend: Backend = "auto"
    kept: dict[int, tuple[Tensor, Tensor]] | None = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        if self.kept is not None:
            self.kept[layer] = (k[0], v[0])
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))  # [T, H, D]
        bias = self.graph_bias(layer, self.inputs)
        out = graph_attention(
            q, k, v, self.layout, bias,
            pairs=self.pairs, scale=scoring.scale, softcap=scoring.softcap, window=scoring.window, backend=self.backend,
        )  # fmt: skip
        return out[None]

    def rows_of(self, nodes: Tensor, layer: int) -> Tensor | None:
        """The bias of one node per graph on all nodes of its graph. Shapes: **nodes** (B,); **returns** (B, H, N)."""
        bias = self.graph_bias(layer, self.inputs)
        graph = torch.arange(nodes.numel(), device=nodes.device)
        if bias is None or self.pairs is None:
            return None if bias is None else bias[graph, :, nodes]
        listed, of, key = self._listed(nodes)
        rows = bias.new_zeros(nodes.numel(), self.layout.most_nodes, bias.size(0))
        return rows.index_put((of, key), bias[:, listed].T).transpose(1, 2)

    def seen_by(self, nodes: Tensor) -> Tensor | None:
        """What one node per graph sees of its graph, itself aside; None = all. Shapes: **returns** (B, N) bool."""
        if self.pairs is None:
            return None
        _, of, key = self._listed(nodes)
        seen = torch.zeros(nodes.numel(), self.layout.most_nodes, dtype=torch.bool, device=nodes.device)
        seen[of, key] = True
        return seen

    def _listed(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs whose query is one of the nodes: their places, graphs, and keys within the graph."""
        assert self.pairs is not None
        start = self.layout.num_nodes.cumsum(0) - self.layout.num_nodes
        graph = torch.repeat_interleave(self.layout.num_nodes)[self.pairs[0]]  # [P]
        listed = (self.pairs[0] == (start + nodes)[graph]).nonzero().view(-1)
        return listed, graph[listed], self.pairs[1, listed] - start[graph[listed]]


@dataclass
class Probe:
    """Records which layers ask for attention; answers zeros."""

    layers: list[int] = field(default_factory=list)
    num_heads: set[int] = field(default_factory=set)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        if k.shape != v.shape or k.size(-1) != q.size(-1):
            raise ValueError(f"queries, keys and values of {q.shape[-1]}, {k.shape[-1]} and {v.shape[-1]} dimensions")
        self.layers.append(layer)
        self.num_heads.add(q.size(1))
        return torch.zeros_like(q).transpose(1, 2)


def install(model: PreTrainedModel, owner: str = "GTLM") -> None:
    """Switches a decoder's attention to ours and makes sure that every layer reaches it; **owner** is named in errors.

    Raises:
        ValueError: If the architecture cannot work, with the reason.
    """
    name = type(model).__name__
    config = model.config.get_text_config()

    def refuse(reason: str) -> None:
        raise ValueError(
            f"{owner}: {name} cannot read text graphs: {reason}; expected a decoder such as Llama or Qwen3"
        )

    if getattr(config, "is_encoder_decoder", False):
        refuse("it is an encoder-decoder")
    if model.get_output_embeddings() is None:
        refuse("it has no language-model head (load it with AutoModelForCausalLM)")
    if not getattr(model, "_supports_attention_backend", False):
        refuse("its attention does not go through transformers' AttentionInterface")
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        refuse(f"it has layers of type {sorted(kinds)}")
    if getattr(config, "attention_dropout", 0.0):
        refuse(f"attention_dropout is {config.attention_dropout}, expected 0 (set it in the config)")
    before = model.config._attn_implementation
    model.set_attn_implementation(IMPLEMENTATION)
    probe = Probe()
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.get_input_embeddings().weight.device)
    try:
        with torch.no_grad(), evaluating(model):
            model(input_ids=ids, position_ids=ids, use_cache=False, text_graph=probe)
    except (TypeError, ValueError) as error:
        model.set_attn_implementation(before)
        refuse(str(error))
    if sorted(probe.layers) != list(range(config.num_hidden_layers)) or probe.num_heads != {config.num_attention_heads}:
        model.set_attn_implementation(before)
        refuse(f"graph attention reached layers {sorted(probe.layers)} of {config.num_hidden_layers}")

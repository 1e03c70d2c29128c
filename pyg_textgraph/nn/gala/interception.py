"""How attention of an unchanged Hugging Face decoder is taken over for one call, and given back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from pyg_textgraph.nn.decoders import decoder_of
from pyg_textgraph.nn.modes import evaluating

IMPLEMENTATION = "graph_aligned"


@dataclass(frozen=True)
class AttentionCall:
    """What a layer passes to its attention function.

    Shapes:
        - **query** (B, H, T, D); **key**, **value** (B, H_kv, S, D)
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    kwargs: dict[str, Any]

    @property
    def layer(self) -> int:
        return self.module.layer_idx  # type: ignore[return-value]

    def own(self) -> tuple[Tensor, Tensor | None]:
        """What the model computes by itself: output (B, T, H, D), and attention weights if it returns them."""
        home = sys.modules[type(self.module).forward.__module__]  # the model's own file, for its eager function
        function = home.ALL_ATTENTION_FUNCTIONS.get_interface(
            self.module.config.original._attn_implementation,  # type: ignore[union-attr]
            home.eager_attention_forward,
        )
        return function(self.module, self.query, self.key, self.value, self.mask, **self.kwargs)


Interceptor = Callable[[AttentionCall], tuple[Tensor, Tensor | None]]
_ACTIVE: ContextVar[Interceptor | None] = ContextVar("graph_aligned", default=None)
_LOCK = Lock()


def _attention_function(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """The function registered with :class:`transformers.AttentionInterface`."""
    call = AttentionCall(module, query, key, value, attention_mask, kwargs)
    interceptor = _ACTIVE.get()
    return call.own() if interceptor is None else interceptor(call)


AttentionInterface.register(IMPLEMENTATION, _attention_function)


class _LayerConfig:
    """A layer's configuration that names our function where an interceptor is active; others see the original."""

    def __init__(self, original: Any) -> None:
        self.original, self.users = original, 0

    @property
    def _attn_implementation(self) -> str:
        return self.original._attn_implementation if _ACTIVE.get() is None else IMPLEMENTATION

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


@contextmanager
def intercept(layers: Iterable[nn.Module], interceptor: Interceptor) -> Iterator[None]:
    """Within the context and this thread, the layers' attention goes through ``interceptor``.

    The model's own configuration stays, so it builds the masks that its own attention function needs.
    """
    modules: list[Any] = list(layers)
    with _LOCK:
        for module in modules:
            if not isinstance(module.config, _LayerConfig):
                module.config = _LayerConfig(module.config)
            module.config.users += 1
    token = _ACTIVE.set(interceptor)
    try:
        yield
    finally:
        _ACTIVE.reset(token)
        with _LOCK:
            for module in modules:
                module.config.users -= 1
                if module.config.users == 0:
                    module.config = module.config.original


def attention_layers(model: PreTrainedModel | PeftModel) -> list[nn.Module]:
    """The attention module of every layer, found by reading two tokens.

    Raises:
        ValueError: If the architecture cannot work, with the reason.
    """
    decoder = decoder_of(model)
    config, name = decoder.config.get_text_config(), type(decoder).__name__
    found: dict[int, nn.Module] = {}

    def probe(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        if call.kwargs.get("s_aux") is not None:
            raise ValueError(f"GaLA: {name} has attention sinks, which graph attention does not support")
        if call.query.size(1) != config.num_attention_heads or call.key.shape != call.value.shape:
            raise ValueError(f"GaLA: layer {call.layer} of {name} has keys and values of different sizes")
        found[call.layer] = call.module
        return call.own()

    candidates = [module for module in decoder.modules() if hasattr(module, "layer_idx") and hasattr(module, "config")]
    ids = torch.zeros(1, 2, dtype=torch.long, device=decoder.get_input_embeddings().weight.device)
    with torch.no_grad(), evaluating(decoder), intercept(candidates, probe):
        decoder(input_ids=ids, use_cache=False)
    if sorted(found) != list(range(config.num_hidden_layers)):
        raise ValueError(
            f"GaLA: {name} lets attention be replaced in layers {sorted(found)} of {config.num_hidden_layers}; "
            "expected a decoder such as Llama or Qwen3, whose attention goes through transformers' AttentionInterface"
        )
    return [found[layer] for layer in range(len(found))]

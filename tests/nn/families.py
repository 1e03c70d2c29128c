"""Tiny random decoders of every family, with windows shorter than the sequences of the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

SIZES: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 4
ALTERNATING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, **ALTERNATING}),
    "qwen3": ("Qwen3", {"use_sliding_window": True, **ALTERNATING}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {**ALTERNATING, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}),
    "gemma3": ("Gemma3", {**ALTERNATING}),
    "phi3": ("Phi3", {"sliding_window": WINDOW, "hidden_size": 32}),
    "smollm3": ("SmolLM3", {"use_sliding_window": True, **ALTERNATING}),
    "olmo2": ("Olmo2", {}),
}


def tiny(family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random decoder in float32, in evaluation mode. Same seed, same weights."""
    name, own = CONFIGS[family]
    config_class = getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")
    sizes = SIZES | own | changes
    torch.manual_seed(seed)
    make: Callable[..., PreTrainedModel] = getattr(transformers, f"{name}ForCausalLM")
    model = make(config_class(**sizes)).eval()
    with torch.no_grad():  # initial weights of std 0.02 would make every property hold by smallness
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return model

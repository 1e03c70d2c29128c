"""The language model under its adapters."""

from __future__ import annotations

from peft import PeftModel
from transformers import PreTrainedModel


def decoder_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The language model itself, with or without adapters in it."""
    return model.get_base_model() if isinstance(model, PeftModel) else model

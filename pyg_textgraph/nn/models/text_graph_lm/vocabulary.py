"""New tokens of a language model, whose embeddings train with its adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig
from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase


def num_embeddings(model: PreTrainedModel | PeftModel) -> int:
    """How many tokens a model has embeddings for, trained rows or not."""
    rows: int = model.get_input_embeddings().weight.size(0)
    return rows


@torch.no_grad()
def add_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Mapping[str, str], lora: LoraConfig
) -> dict[str, list[int]]:
    """Adds tokens to a tokenizer and, where the rows do not suffice, to the embeddings.

    The embedding of a new token, and its row of the output layer, start as the mean of those of some words.

    Args:
        model: The language model.
        tokenizer: Its tokenizer; tokens that it has already are left as they are and train, too.
        tokens: Each new token, and the words.
        lora: The adapters that will hold the rows.

    Returns:
        What ``trainable_token_indices`` of a :class:`~peft.LoraConfig` is to be: rows by the name of their layer.

    Raises:
        ValueError: If words have no tokens, or the adapters have trainable rows already.
    """
    if lora.trainable_token_indices is not None:
        raise ValueError("'lora' has 'trainable_token_indices' and 'new_tokens' asks for more; give one of them")
    meanings = []
    for token, words in tokens.items():
        meanings.append(tokenizer(" " + words.strip(), add_special_tokens=False)["input_ids"] if words.strip() else [])
        if not meanings[-1]:
            raise ValueError(f"'new_tokens' gives {token!r} the words {words!r}, which have no tokens")
    known = tokenizer.get_vocab()
    tokenizer.add_tokens([token for token in tokens if token not in known], special_tokens=True)
    ids: list[int] = tokenizer.convert_tokens_to_ids(list(tokens))
    if max(ids) >= num_embeddings(model):
        model.resize_token_embeddings(max(ids) + 1, mean_resizing=False)
    layers: list[nn.Module] = [model.get_input_embeddings(), model.get_output_embeddings()]
    if layers[0].weight is layers[1].weight:
        layers = layers[:1]  # tied: peft sees to the output layer
    for layer in layers:
        weight: torch.Tensor = layer.weight  # type: ignore[assignment]
        for token, row, meaning in zip(tokens, ids, meanings, strict=True):
            if token not in known:
                weight[row] = weight[meaning].float().mean(0).to(weight)
    names = {id(layer): name.rsplit(".", 1)[-1] for name, layer in model.named_modules()}
    return {names[id(layer)]: ids for layer in layers}

"""Scores of possible answers, and what they are worth."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel

from pyg_textgraph.data.linearization import GraphPrompt
from pyg_textgraph.nn.gala.hook import GaLA

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def option_ids(tokenizer: PreTrainedTokenizerBase, options: Sequence[str], lead: str = "") -> list[Tensor]:
    """Tokens of each answer, end token included.

    Args:
        tokenizer: With an end token.
        options: The answers.
        lead: What stands before an answer, ``prompt.lead``.

    Raises:
        ValueError: If an answer is empty or there is no end token.
    """
    if tokenizer.eos_token_id is None or not all(options):
        raise ValueError("option_ids: answers must not be empty, and the tokenizer needs an 'eos_token'")
    ids = tokenizer([lead + option for option in options], add_special_tokens=False)["input_ids"]
    return [torch.tensor([*row, tokenizer.eos_token_id]) for row in ids]


@torch.no_grad()
def option_scores(
    reader: GaLA | PreTrainedModel,
    prompts: Sequence[GraphPrompt],
    options: Sequence[Tensor],
    *,
    progress: str | None = None,
) -> Tensor:
    """Log-probability of every option after every prompt: the sum over its tokens.

    A prompt is read once; the options continue it from its cache.

    Args:
        reader: A model, or a GaLA around it.
        prompts: The prompts.
        options: From :func:`option_ids`.
        progress: Name of a progress bar; none by default.

    Shapes:
        - **returns** (len(prompts), C), float32, on the CPU
    """
    gala, model = (reader, reader.model) if isinstance(reader, GaLA) else (None, reader)
    rows = torch.nn.utils.rnn.pad_sequence(list(options), batch_first=True, padding_value=-1)  # [C, L]
    told = rows.clamp(min=0).to(model.device)
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    scores = torch.empty(len(prompts), len(options))
    for i, prompt in enumerate(tqdm(prompts, progress, disable=progress is None, leave=False)):
        cache = DynamicCache(config=model.config)
        keep: dict[str, Any] = {cache_name: cache, "use_cache": True}
        with nullcontext() if gala is None else gala(prompt):
            logits = model(prompt.input_ids[None].to(model.device), logits_to_keep=1, **keep).logits  # [1, 1, V]
            logits = logits.expand(len(options), -1, -1)
            if told.size(1) > 1:
                cache.batch_repeat_interleave(len(options))
                logits = torch.cat([logits, model(told[:, :-1], **keep).logits], 1)  # [C, L, V]
        gained = logits.float().log_softmax(-1).gather(-1, told[..., None])[..., 0]
        scores[i] = gained.cpu().masked_fill(rows < 0, 0).sum(-1)
    return scores


def centered(scores: Tensor, reference: Tensor | None = None) -> Tensor:
    """Scores less each option's mean over unlabelled prompts, which takes away what a model says to any prompt.

    Where options are not equally common this also takes away what a good model knows of it: with a few labelled prompts
    at hand, see whether it helps.

    Args:
        scores: From :func:`option_scores`.
        reference: Scores of the unlabelled prompts; **scores** themselves by default.

    Shapes:
        - **scores** (n, C); **reference** (m, C)
    """
    return scores - (scores if reference is None else reference).mean(0)


def named_option(text: str, options: Sequence[str]) -> int | None:
    """The option that a text names last, as words of its own, the longest one where several end together; None if it
    names none."""
    ends = [
        (match.end(), len(option), index)
        for index, option in enumerate(options)
        for match in re.finditer(rf"(?<!\w){re.escape(option)}(?!\w)", text, re.IGNORECASE)
    ]
    return max(ends)[2] if ends else None

"""Which heads to strengthen, and how much: entropy, gradient, and β over a validation set (arXiv 2606.15633)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from pyg_textgraph.data.linearization import GraphPrompt
from pyg_textgraph.nn.gala.hook import GaLA
from pyg_textgraph.nn.gala.interception import AttentionCall, attention_layers, intercept
from pyg_textgraph.nn.gala.strengths import HeadStrengths

ROWS = 128  # queries whose attention is held at a time


@torch.no_grad()
def attention_entropy(model: PreTrainedModel, prompts: Sequence[GraphPrompt], *, progress: bool = False) -> Tensor:
    """Entropy of the rows of causal attention, in nats, averaged over all tokens of all prompts, without GaLA.

    Shapes:
        - **returns** (L, H)
    """
    modules = attention_layers(model)
    total = torch.zeros(len(modules), model.config.get_text_config().num_attention_heads, dtype=torch.double)

    def record(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        for start in range(0, call.query.size(2), ROWS):
            score = causal_scores(call, slice(start, start + ROWS))  # [H, R, S]
            total[call.layer] += torch.special.entr(score.softmax(-1)).sum((1, 2)).cpu()
        return call.own()

    with intercept(modules, record):
        for prompt in tqdm(prompts, "entropy", disable=not progress):
            model(input_ids=prompt.input_ids[None].to(model.device), use_cache=False, logits_to_keep=1)
    return (total / sum(len(prompt) for prompt in prompts)).float()


def causal_scores(call: AttentionCall, rows: slice) -> Tensor:
    """Attention scores of some queries of the first sequence, −∞ where the layer hides a key.

    Shapes:
        - **returns** (H, R, S), float32
    """
    key = call.key[0].repeat_interleave(call.query.size(1) // call.key.size(1), 0)
    score = (call.query[0, :, rows].float() @ key.float().mT) * (
        call.kwargs.get("scaling") or call.query.size(-1) ** -0.5
    )
    if (softcap := call.kwargs.get("softcap")) is not None:
        score = softcap * torch.tanh(score / softcap)
    key_at = torch.arange(key.size(1), device=score.device)
    row_at = key_at[rows, None]
    hidden = key_at > row_at
    if (window := call.kwargs.get("sliding_window")) is not None:
        hidden |= row_at - key_at >= window
    return score.masked_fill(hidden, -torch.inf)


def entropy_strengths(
    model: PreTrainedModel, prompts: Sequence[GraphPrompt], *, progress: bool = False
) -> HeadStrengths:
    """Strengthens heads that spread their attention: square root of the entropy relative to the layer's largest."""
    return HeadStrengths.from_entropy(attention_entropy(model, prompts, progress=progress))


def head_gradient(
    gala: GaLA, prompts: Sequence[GraphPrompt], answers: Sequence[Tensor], *, progress: bool = False
) -> Tensor:
    """Mean gradient of −log p(answer | prompt) with respect to a scale of every head's bias, at scale 1.

    One forward and one backward pass per prompt; ``gala`` tells the model and the layers, its strengths do not matter.

    Args:
        gala: The hook around the model.
        prompts: Labelled prompts.
        answers: The tokens of each right answer.
        progress: Whether to show a progress bar.

    Shapes:
        - **returns** (L, H), 0 in layers without bias
    """
    scale = torch.zeros_like(gala.heads.values)
    scale[gala.layers] = 1
    total = torch.zeros_like(scale)
    for prompt, answer in zip(tqdm(prompts, "gradient", disable=not progress), answers, strict=True):
        scale.requires_grad_()
        ids = torch.cat([prompt.input_ids, answer[:-1]])[None].to(gala.model.device)
        with torch.enable_grad(), gala.biased([prompt], scale):
            logits = gala.model(input_ids=ids, use_cache=False, logits_to_keep=answer.numel()).logits[0]
            loss = torch.nn.functional.cross_entropy(logits.float(), answer.to(logits.device), reduction="sum")
            total += torch.autograd.grad(loss, scale)[0].cpu()
    return total / len(prompts)


def gradient_strengths(
    gala: GaLA, prompts: Sequence[GraphPrompt], answers: Sequence[Tensor], *, progress: bool = False
) -> HeadStrengths:
    """Strengthens heads whose bias makes right answers likelier, relative to the most helpful head of the layer."""
    return HeadStrengths.from_gradient(head_gradient(gala, prompts, answers, progress=progress))


def tune_strength(
    gala: GaLA, quality: Callable[[GaLA], float], strengths: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0)
) -> dict[float, float]:
    """Sets ``gala.strength`` to the candidate of the highest quality, the smallest one on ties.

    Args:
        gala: The hook; it keeps the best strength.
        quality: Higher is better, e.g. the accuracy on a validation set.
        strengths: The candidates.

    Returns:
        The quality of every candidate.
    """
    found = {}
    for strength in sorted(strengths):
        gala.strength = strength
        found[strength] = quality(gala)
    gala.strength = max(found, key=lambda strength: found[strength])
    return found

"""What a model's attention makes of a prompted graph."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pyg_textgraph.data.linearization import GraphPrompt
from pyg_textgraph.nn.gala.calibration import causal_scores
from pyg_textgraph.nn.gala.hook import inverse_distance
from pyg_textgraph.nn.gala.interception import AttentionCall, attention_layers, intercept


class _Enough(Exception):
    """Ends a forward pass whose later layers nobody needs."""


@torch.no_grad()
def attention_scores(
    model: PreTrainedModel, prompt: GraphPrompt, layer: int, rows: slice, *, rotary: bool = True
) -> Tensor:
    """Attention scores of some tokens before the softmax, −∞ where a key is hidden.

    Args:
        model: Any decoder.
        prompt: What it reads.
        layer: Which layer's scores.
        rows: The tokens that look.
        rotary: ``False`` gives the scores before rotary positions are applied.

    Shapes:
        - **returns** (H, R, T), float32
    """
    module = attention_layers(model)[layer]
    scores: list[Tensor] = []

    def record(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        scores.append(causal_scores(call, rows))
        raise _Enough

    def without_positions(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        cos, sin = kwargs["position_embeddings"]
        return args, kwargs | {"position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}

    handle = None if rotary else module.register_forward_pre_hook(without_positions, with_kwargs=True)
    try:
        with suppress(_Enough), intercept([module], record):
            model(input_ids=prompt.input_ids[None].to(model.device), use_cache=False, logits_to_keep=1)
    finally:
        if handle is not None:
            handle.remove()
    return scores[0].cpu()


def node_attention_similarity(model: PreTrainedModel, prompt: GraphPrompt, layer: int) -> Tensor:
    """Mean attention score (before the softmax, over heads and tokens) from the tokens of one node to an earlier one's.

    Unlike attention probabilities it does not depend on how many other tokens there are.

    Shapes:
        - **returns** (N, N), row = the node that looks; NaN where it comes first, or hides a token
    """
    score = attention_scores(model, prompt, layer, slice(None)).mean(0)  # [T, T]
    member = torch.nn.functional.one_hot(prompt.node + 1, prompt.num_nodes + 1)[:, 1:].float()  # [T, N]
    count = member.sum(0)
    hidden = member.T @ score.isinf().float() @ member > 0
    mean = member.T @ score.masked_fill(score.isinf(), 0) @ member / (count[:, None] * count)
    return mean.masked_fill(hidden, torch.nan)


def token_rank(model: PreTrainedModel, prompt: GraphPrompt, depth: float = 0.8, share: float = 0.25) -> Tensor:
    """How many tokens the prompt's last token scores strictly higher than each token; 0 is best.

    Scores are averaged over the share of heads whose scores before rotary positions are largest on average.

    Args:
        model: Any decoder.
        prompt: What it reads.
        depth: Which layer, as a part of all.
        share: Part of the heads.

    Shapes:
        - **returns** (T,)
    """
    layer = round(depth * (model.config.get_text_config().num_hidden_layers - 1))
    last = slice(len(prompt) - 1, len(prompt))
    content = attention_scores(model, prompt, layer, last, rotary=False)[:, 0]  # [H, T]
    seen = content.isfinite().all(0)  # a sliding window hides tokens
    strongest = content[:, seen].mean(-1).topk(max(1, round(share * len(content)))).indices
    score = attention_scores(model, prompt, layer, last)[strongest, 0].mean(0)  # [T]
    ascending = score.sort().values
    return len(prompt) - torch.searchsorted(ascending, score, right=True)


def node_rank(rank: Tensor, prompt: GraphPrompt) -> Tensor:
    """Mean rank of every node's tokens, (N,), NaN for a node without tokens. Shapes: **rank** (T,)"""
    inside = prompt.node >= 0
    total = torch.zeros(prompt.num_nodes).index_add_(0, prompt.node[inside], rank[inside].float())
    return total / torch.bincount(prompt.node[inside], minlength=prompt.num_nodes)


def average_neighbor_rank(rank: Tensor, prompt: GraphPrompt) -> float:
    """Mean of :func:`node_rank` over the ego's immediate neighbours; NaN without any. Shapes: **rank** (T,)"""
    near = inverse_distance(prompt.edge_index, prompt.num_nodes)[prompt.ego] == 1
    return float(node_rank(rank, prompt)[near].mean())

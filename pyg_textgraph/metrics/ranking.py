"""How high the one right answer stands among candidates, ties counted against us."""

from __future__ import annotations

import torch
from torch import Tensor


def positive_ranks(positive: Tensor, negative: Tensor) -> Tensor:
    """The rank of each query's right answer, 1 being the best; negatives with its score, or NaN, stand before it.

    Args:
        positive: Scores of the right answers.
        negative: Scores of the others; −inf for a candidate that does not exist.

    Shapes:
        - **positive** (Q,); **negative** (Q, M)
        - **returns** (Q,) int64
    """
    absent = negative == -torch.inf
    return 1 + (~(positive[:, None] > negative) & ~absent).sum(-1)


def ranking_metrics(rank: Tensor) -> dict[str, float]:
    r"""Means over queries with one right answer each: P@1, MRR :math:`1/r` and NDCG :math:`1/\log_2(1+r)`.

    Shapes: **rank** (Q,), from 1

    Raises:
        ValueError: If there are no ranks.
    """
    if rank.numel() == 0:
        raise ValueError("ranking_metrics: 'rank' is empty, expected at least one query")
    r = rank.double()
    values = {"p@1": r == 1, "mrr": 1 / r, "ndcg": 1 / torch.log2(1 + r)}
    return {name: float(value.double().mean()) for name, value in values.items()}


def auc(positive: Tensor, negative: Tensor) -> float:
    """The share of pairs (positive, negative) in which the positive scores higher; a tie counts as lost.

    Shapes: **positive** (P,); **negative** (M,)

    Raises:
        ValueError: If one of them is empty or holds NaN.
    """
    if positive.numel() == 0 or negative.numel() == 0:
        raise ValueError("auc: expected at least one positive and one negative")
    if positive.isnan().any() or negative.isnan().any():
        raise ValueError("auc: the scores hold NaN")
    below = torch.searchsorted(negative.sort().values, positive.contiguous())  # negatives strictly below
    return float(below.double().mean()) / negative.numel()


def sample_candidates(
    links: Tensor, num_nodes: int, num_negatives: int = 299, *, known: Tensor | None = None, seed: int = 0
) -> Tensor:
    """Random wrong answers for every link's first node: not itself, not linked to it, none twice.

    Args:
        links: The links asked for.
        num_nodes: Nodes to draw from.
        num_negatives: Wrong answers per link.
        known: All links of the graph, either direction; **links** are known anyway.
        seed: Of the draw.

    Shapes:
        - **links** (2, Q); **known** (2, E)
        - **returns** (Q, num_negatives)

    Raises:
        ValueError: If a query has not that many wrong answers.
    """
    linked = links if known is None else torch.cat([links, known], dim=1)
    linked = torch.cat([linked, linked.flip(0)], dim=1)
    linked = linked[:, linked[0].argsort(stable=True)]
    ptr = torch.searchsorted(linked[0].contiguous(), torch.arange(num_nodes + 1))
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for query in links[0].tolist():
        bad = torch.cat([linked[1, int(ptr[query]) : int(ptr[query + 1])], torch.tensor([query])]).unique()
        if num_nodes - bad.numel() < num_negatives:
            raise ValueError(
                f"sample_candidates: node {query} has {num_nodes - bad.numel()} wrong answers, expected {num_negatives}"
            )
        # the i-th number that is not in `bad`: every bad number at or below it moves it up by one
        free = _some(num_nodes - bad.numel(), num_negatives, generator)
        rows.append(free + torch.searchsorted(bad - torch.arange(bad.numel()), free, right=True))
    return torch.stack(rows) if rows else links.new_empty(0, num_negatives)


def _some(total: int, size: int, generator: torch.Generator) -> Tensor:
    """**size** different numbers below **total**, in random order."""
    if 3 * size > total:
        return torch.randperm(total, generator=generator)[:size]
    drawn = torch.randint(total, (2 * size + 16,), generator=generator).unique()
    while drawn.numel() < size:
        drawn = torch.cat([drawn, torch.randint(total, (size,), generator=generator)]).unique()
    return drawn[torch.randperm(drawn.numel(), generator=generator)[:size]]

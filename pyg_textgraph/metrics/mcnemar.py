"""Whether two models that answered the same questions differ."""

from __future__ import annotations

from scipy.stats import binomtest
from torch import Tensor


def mcnemar(correct: Tensor, other: Tensor) -> float:
    """Exact two-sided McNemar test: the probability of so uneven a split of the questions that only one got right.

    Args:
        correct: Which questions the first model answered correctly.
        other: The same for the second model.

    Shapes:
        - **correct**, **other** (n,) bool

    Raises:
        ValueError: If the shapes differ.
    """
    if correct.shape != other.shape:
        raise ValueError(f"mcnemar: 'other' is of shape {tuple(other.shape)}, expected {tuple(correct.shape)}")
    only, not_only = int((correct & ~other).sum()), int((other & ~correct).sum())
    return float(binomtest(only, only + not_only).pvalue) if only + not_only else 1.0

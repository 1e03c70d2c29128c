"""What it means to keep the heaviest pointers of a list."""

import torch
import torch.nn.functional as F
from torch import Tensor

LIGHTEST = 1e-20
"""Lighter pointers count as empty where a logarithm is taken: its gradient would leave float32's range further up."""


def sparsify_reference(index: Tensor, weight: Tensor, s: int) -> tuple[Tensor, Tensor]:
    """Merges equal indices, keeps the s heaviest and lets their weights sum to one.

    Shapes:
        - **index**, **weight** (\\*, m)
        - **returns** index and weight (\\*, s), heaviest first, ties by first position;
          an empty slot is index 0, weight 0
    """
    same = index.unsqueeze(-1) == index.unsqueeze(-2)  # [*, m, m]
    first = ~same.tril(-1).any(-1)  # [*, m], the first of its index
    merged = (same * weight.unsqueeze(-2)).sum(-1) * first
    order = merged.argsort(dim=-1, descending=True, stable=True)[..., :s]
    kept = merged.gather(-1, order)
    empty = kept == 0
    index, kept = index.gather(-1, order).masked_fill(empty, 0), kept.masked_fill(empty, 0)
    kept = kept / kept.sum(-1, keepdim=True).clamp(min=1e-8)
    missing = (0, s - order.size(-1))
    return F.pad(index, missing), F.pad(kept, missing)


def drop_lightest(weight: Tensor) -> Tensor:
    """Zero in the place of weights below ``LIGHTEST``."""
    return F.threshold(weight, LIGHTEST, 0.0)


def temper(weight: Tensor, temperature: Tensor) -> Tensor:
    r"""Sharpens or flattens weights, :math:`T_\tau(a) = a^\tau / \sum a^\tau`; zeros stay zero (arXiv 2609.02881).

    Weights below 1e-20 count as zero.

    Shapes:
        - **weight** (\\*, m), **temperature** (\\*)
        - **returns** (\\*, m), which sums to one unless all weights are zero
    """
    empty = drop_lightest(weight) == 0
    return softmax_of_kept(weight.masked_fill(empty, 1).log() * temperature.unsqueeze(-1), empty)


def softmax_of_kept(log: Tensor, empty: Tensor) -> Tensor:
    """The softmax over all but the empty places, which get zero; a row without others is zero."""
    largest = log.detach().masked_fill(empty, torch.finfo(log.dtype).min).amax(-1, keepdim=True)
    power = (log - largest).masked_fill(empty, -torch.inf).exp()
    return power / power.sum(-1, keepdim=True).clamp(min=1)  # the largest power is 1, so only empty rows are clamped

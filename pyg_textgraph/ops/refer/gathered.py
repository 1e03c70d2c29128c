"""Referral by gathering the s2·s3 products of each channel: no n×n matrix."""

import torch
from torch import Tensor

from pyg_textgraph.ops.sparsify import sparsify


def refer_gathered(
    index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int
) -> tuple[Tensor, Tensor]:
    """As `refer_reference`, but ties go to the first pointer of the first pointer, and batches are allowed."""
    row = flat_rows(index, next_index.size(-3))
    candidate = next_index.flatten(0, -2)[row]  # [*, k, s2, s3]
    product = weight.unsqueeze(-1) * next_weight.flatten(0, -2)[row]
    return sparsify(candidate.flatten(-2), product.flatten(-2), s)


def flat_rows(index: Tensor, size: int) -> Tensor:
    """Row of (batch, token, channel) in the flattened table that a pointer (\\*, n, k, s) of its channel names."""
    channels = index.size(-2)
    row = index * channels + torch.arange(channels, device=index.device, dtype=index.dtype).unsqueeze(-1)
    if index.dim() == 3:
        return row
    batch = torch.arange(index.shape[:-3].numel(), device=index.device, dtype=index.dtype)
    return row + (batch * size * channels).view(*index.shape[:-3], 1, 1, 1)

"""What it means to follow pointers of pointers."""

import torch
from torch import Tensor

from pyg_textgraph.ops.sparsify.reference import sparsify_reference


def refer_reference(
    index: Tensor, weight: Tensor, next_index: Tensor, next_weight: Tensor, s: int
) -> tuple[Tensor, Tensor]:
    """The s heaviest entries per row of the dense product A1·A2 of each channel; ties by index.

    Shapes:
        - **index**, **weight** (n, k, s2); **next_index**, **next_weight** (N, k, s3), which index points into
        - **returns** index and weight (n, k, s)
    """
    size = max(len(next_index), int(next_index.max()) + 1)
    first = weight.new_zeros(*index.shape[:2], size).scatter_add(-1, index.long(), weight)  # [n, k, N]
    second = next_weight.new_zeros(size, next_index.size(1), size)
    second = second[: len(next_index)].scatter_add(-1, next_index.long(), next_weight)  # [N, k, N]
    product = torch.einsum("nkm,mkj->nkj", first[..., : len(next_index)], second)
    everything = torch.arange(size, device=index.device, dtype=index.dtype).expand(product.shape)
    return sparsify_reference(everything, product, s)

"""Follow pointers of pointers."""

from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.refer.gathered import flat_rows, refer_gathered
from pyg_textgraph.ops.refer.reference import refer_reference

__all__ = ["flat_rows", "refer"]


def refer(
    index: Tensor,
    weight: Tensor,
    next_index: Tensor,
    next_weight: Tensor,
    s: int,
    *,
    backend: Literal["auto", "reference", "gathered"] = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Composes pointers channel by channel, ``Sparsify_s(A1 A2)`` (GM-2, arXiv 2609.02881).

    Args:
        index: (\*, n, k, s2), the first step of every channel: rows of `next_index`.
        weight: (\*, n, k, s2).
        next_index: (\*, N, k, s3), the second step.
        next_weight: (\*, N, k, s3).
        s: Pointers to keep per channel.

    Shapes:
        - **returns** index and weight (\*, n, k, s), heaviest first

    Raises:
        ValueError: If the two steps differ in their batch or in their number of channels.
    """
    if index.shape[:-3] != next_index.shape[:-3] or index.size(-2) != next_index.size(-2):
        raise ValueError(f"refer: 'index' {tuple(index.shape)} and 'next_index' {tuple(next_index.shape)} do not match")
    compose = refer_reference if backend == "reference" else refer_gathered
    return compose(index, weight, next_index, next_weight, s)

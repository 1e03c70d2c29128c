"""Follow pointers of pointers."""

from types import ModuleType
from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.backend import implementation
from pyg_textgraph.ops.refer.gathered import flat_rows, refer_gathered
from pyg_textgraph.ops.refer.reference import refer_reference

__all__ = ["flat_rows", "refer"]

_PORTABLE = {"reference": refer_reference, "gathered": refer_gathered}


def refer(
    index: Tensor,
    weight: Tensor,
    next_index: Tensor,
    next_weight: Tensor,
    s: int,
    *,
    backend: Literal["auto", "reference", "gathered", "triton"] = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Composes pointers channel by channel, ``Sparsify_s(A1 A2)`` (GM-2, arXiv 2609.02881).

    Args:
        index: (\*, n, k, s2), the first step of every channel: rows of `next_index`.
        weight: (\*, n, k, s2).
        next_index: (\*, N, k, s3), the second step.
        next_weight: (\*, N, k, s3).
        s: Pointers to keep per channel.
        backend: ``"reference"`` (dense, no batch dimensions), ``"gathered"`` (any device), ``"triton"`` (NVIDIA GPUs,
            needs the package triton; s2·s3 of up to 64) or ``"auto"``: triton where it can do it, else gathered.

    Shapes:
        - **returns** index and weight (\*, n, k, s), heaviest first

    Raises:
        ValueError: If the two steps differ in their batch or in their number of channels, or an index and its
            weight in shape.
    """
    if index.shape[:-3] != next_index.shape[:-3] or index.size(-2) != next_index.size(-2):
        raise ValueError(f"refer: 'index' {tuple(index.shape)} and 'next_index' {tuple(next_index.shape)} do not match")
    for name, x, y in (("weight", weight, index), ("next_weight", next_weight, next_index)):
        if x.shape != y.shape:
            raise ValueError(f"refer: '{name}' is {tuple(x.shape)}, expected {tuple(y.shape)}")
    args = (index, weight, next_index, next_weight, s)
    return implementation("refer", backend, _PORTABLE, _kernels, args)(*args)


def _kernels() -> ModuleType:
    from pyg_textgraph.ops.refer import triton

    return triton

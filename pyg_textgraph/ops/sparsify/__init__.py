"""Keep the heaviest pointers of a list."""

from types import ModuleType
from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.backend import implementation
from pyg_textgraph.ops.sparsify.blocked import sparsify_blocked
from pyg_textgraph.ops.sparsify.reference import drop_lightest, sparsify_reference, temper

__all__ = ["drop_lightest", "sparsify", "temper"]

_PORTABLE = {"reference": sparsify_reference, "blocked": sparsify_blocked}


def sparsify(
    index: Tensor, weight: Tensor, s: int, *, backend: Literal["auto", "reference", "blocked", "triton"] = "auto"
) -> tuple[Tensor, Tensor]:
    r"""Merges equal indices, keeps the s heaviest and lets their weights sum to one (GM-2, arXiv 2609.02881).

    The gradient passes through the kept weights only. An all-zero row stays zero. Backends are ``"reference"``,
    ``"blocked"`` (any device, sorts), ``"triton"`` (NVIDIA GPUs, needs the package triton; up to 64 candidates, in
    registers) and ``"auto"``: triton where it can do it, else blocked.

    Example:
        >>> sparsify(torch.tensor([0, 3, 2, 3]), torch.tensor([0.2, 0.3, 0.4, 0.1]), s=2)
        (tensor([3, 2]), tensor([0.5000, 0.5000]))

    Shapes:
        - **index** (\*, m), any integer type; **weight** (\*, m), non-negative
        - **returns** index and weight (\*, s), heaviest first, ties by first position;
          an empty slot is index 0, weight 0

    Raises:
        ValueError: If the shapes differ, the lists are empty or s is not positive.
    """
    if index.shape != weight.shape:
        raise ValueError(f"sparsify: 'index' is {tuple(index.shape)} but 'weight' is {tuple(weight.shape)}")
    if index.size(-1) == 0:
        raise ValueError("sparsify: 'index' has lists of 0 pointers, expected at least 1; an empty slot has weight 0")
    if s < 1:
        raise ValueError(f"sparsify: 's' is {s}, but at least one pointer must be kept")
    args = (index, weight, s)
    return implementation("sparsify", backend, _PORTABLE, _kernels, args)(*args)


def _kernels() -> ModuleType:
    from pyg_textgraph.ops.sparsify import triton

    return triton

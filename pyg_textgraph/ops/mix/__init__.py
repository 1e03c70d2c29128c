"""Average soft pointers into new ones."""

from collections.abc import Sequence
from types import ModuleType
from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.backend import implementation
from pyg_textgraph.ops.mix.blocked import mix_blocked
from pyg_textgraph.ops.mix.reference import mix_reference
from pyg_textgraph.ops.sparsify import drop_lightest

__all__ = ["mix"]

_PORTABLE = {"reference": mix_reference, "blocked": mix_blocked}


def mix(
    edges: Sequence[tuple[Tensor, Tensor]],
    logits: Tensor,
    s: int,
    temperature: Tensor | None = None,
    *,
    backend: Literal["auto", "reference", "blocked", "triton"] = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Averages each token's input edges into output channels of s pointers (GM-2, arXiv 2609.02881).

    A channel takes the softmax of its logits over the input edges, multiplies each share with the edge's weights,
    applies its temperature to these contributions, and only then merges equal indices and keeps the s heaviest. Scales
    cancel, so no temperature means one. Weights of edges below 1e-20 count as zero.

    Args:
        edges: Groups of index and weight (\*, e_i, s_i); groups may differ in their number of pointers.
        logits: (\*, e, c), with e the sum of all e_i.
        s: Pointers per output channel.
        temperature: (\*, c), not negative, or None.
        backend: ``"reference"``, ``"blocked"`` (any device), ``"triton"`` (NVIDIA GPUs, needs the package triton; up to
            256 candidates per token) or ``"auto"``: triton where it can do it, else blocked.

    Shapes:
        - **returns** index and weight (\*, c, s), heaviest first, ties by the first position in the groups

    Raises:
        ValueError: If the logits do not have one row per input edge, or other shapes do not match.
    """
    total = sum(index.size(-2) for index, _ in edges)
    if logits.size(-2) != total:
        raise ValueError(f"mix: 'logits' has {logits.size(-2)} rows but there are {total} input edges")
    batch, channels = logits.shape[:-2], logits.size(-1)
    for index, weight in edges:
        if index.shape != weight.shape or index.shape[:-2] != batch:
            raise ValueError(
                f"mix: a group of 'edges' is {tuple(index.shape)} and {tuple(weight.shape)}, expected two of "
                f"{(*batch, 'e', 's')}"
            )
    if any(index.size(-1) == 0 for index, _ in edges) or total == 0:
        raise ValueError("mix: 'edges' has a group without edges or pointers; leave it out, an empty slot has weight 0")
    if temperature is not None and temperature.shape != (*batch, channels):
        raise ValueError(f"mix: 'temperature' is {tuple(temperature.shape)}, expected {(*batch, channels)}")
    args = ([(index, drop_lightest(weight)) for index, weight in edges], logits, s, temperature)
    return implementation("mix", backend, _PORTABLE, _kernels, args)(*args)


def _kernels() -> ModuleType:
    from pyg_textgraph.ops.mix import triton

    return triton

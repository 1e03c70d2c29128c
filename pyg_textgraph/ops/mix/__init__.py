"""Average soft pointers into new ones."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from pyg_textgraph.ops.mix.blocked import mix_blocked
from pyg_textgraph.ops.mix.reference import mix_reference

__all__ = ["mix"]


def mix(
    edges: Sequence[tuple[Tensor, Tensor]],
    logits: Tensor,
    s: int,
    temperature: Tensor | None = None,
    *,
    backend: Literal["auto", "reference", "blocked"] = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Averages each token's input edges into output channels of s pointers (GM-2, arXiv 2609.02881).

    A channel takes the softmax of its logits over the input edges, multiplies each share with the edge's weights,
    applies its temperature to these contributions, and only then merges equal indices and keeps the s heaviest. Scales
    cancel, so no temperature means one.

    Args:
        edges: Groups of index and weight (\*, e_i, s_i); groups may differ in their number of pointers.
        logits: (\*, e, c), with e the sum of all e_i.
        s: Pointers per output channel.
        temperature: (\*, c), positive, or None.

    Shapes:
        - **returns** index and weight (\*, c, s), heaviest first, ties by the first position in the groups

    Raises:
        ValueError: If the logits do not have one row per input edge.
    """
    total = sum(index.size(-2) for index, _ in edges)
    if logits.size(-2) != total:
        raise ValueError(f"mix: 'logits' has {logits.size(-2)} rows but there are {total} input edges")
    return (mix_reference if backend == "reference" else mix_blocked)(edges, logits, s, temperature)

"""What it means to mix soft pointers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_textgraph.ops.sparsify.reference import softmax_of_kept, sparsify_reference


def mix_reference(
    edges: Sequence[tuple[Tensor, Tensor]], logits: Tensor, s: int, temperature: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Each output channel averages the input edges, sharpens the contributions and keeps the s heaviest.

    Shapes:
        - **edges** groups of index and weight (\\*, e_i, s_i)
        - **logits** (\\*, e, c) with e the sum of all e_i; **temperature** (\\*, c)
        - **returns** index and weight (\\*, c, s)
    """
    source = [torch.arange(i.size(-2), device=i.device).repeat_interleave(i.size(-1)) for i, _ in edges]
    offset = torch.tensor([0] + [i.size(-2) for i, _ in edges]).cumsum(0)
    edge = torch.cat([x + int(o) for x, o in zip(source, offset, strict=False)])  # [m], the edge of each candidate
    index = torch.cat([i.flatten(-2) for i, _ in edges], -1).unsqueeze(-2)  # [*, 1, m]
    weight = torch.cat([w.flatten(-2) for _, w in edges], -1).unsqueeze(-2)
    empty = weight <= 0
    # the logarithm of a contribution: share and weight may be too small to be multiplied
    log = logits.log_softmax(-2).transpose(-1, -2)[..., edge] + weight.masked_fill(empty, 1).log()  # [*, c, m]
    if temperature is None:
        temperature = torch.ones_like(logits[..., 0, :])
    contribution = softmax_of_kept(log * temperature.unsqueeze(-1), empty.expand(log.shape))
    return sparsify_reference(index.expand(log.shape), contribution, s)

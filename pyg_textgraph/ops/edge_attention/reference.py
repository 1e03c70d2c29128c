"""What it means to attend along weighted pointers."""

import torch
from torch import Tensor


def edge_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_temperature: Tensor, edge_temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """Softmax over each pointer list of τ_node q·k/√d + τ_edge log w; an empty slot is not attended to.

    Shapes:
        - **q** (n, h, d); **k**, **v** (N, g, d), h a multiple of g
        - **index**, **weight** (n, g, s); **node_temperature** (n, h), **edge_temperature** (n, g)
        - **returns** output (n, h, d) and attention (n, h, s); a row without pointers is zero in both
    """
    group = torch.arange(k.size(1), device=k.device).unsqueeze(-1)
    key, value = k[index.long(), group], v[index.long(), group]  # [n, g, s, d]
    q, tau = (x.unflatten(1, (k.size(1), -1)) for x in (q, node_temperature))  # [n, g, h/g, …]
    score = torch.einsum("ngrd,ngsd->ngrs", q, key) * q.size(-1) ** -0.5 * tau.unsqueeze(-1)
    empty = weight <= 0
    prior = weight.masked_fill(empty, 1).log() * edge_temperature.unsqueeze(-1)
    score = (score + prior.unsqueeze(2)).masked_fill(empty.unsqueeze(2), torch.finfo(score.dtype).min)
    attention = score.softmax(-1).masked_fill(empty.unsqueeze(2), 0)
    return torch.einsum("ngrs,ngsd->ngrd", attention, value).flatten(1, 2), attention.flatten(1, 2)

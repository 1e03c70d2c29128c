"""Which nodes see each other when visibility ends after k hops."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.transforms import k_hop_pairs


def visible_pairs(batch: Data, k_hop: int, through_target: bool = False) -> Tensor:
    """Pairs of different nodes at most ``k_hop`` undirected hops apart.

    Args:
        batch: A text graph or a batch of them.
        k_hop: The limit.
        through_target: Whether distances between context nodes count paths through the target; the target's own always
            do.

    Shapes:
        - **returns** (2, P), nodes counted over the batch, sorted by the first, then the second
    """
    edge_index, num_nodes = batch.edge_index, int(batch.num_nodes or 0)
    pairs = k_hop_pairs(edge_index, num_nodes, k_hop)
    if "target" not in batch or through_target:
        return pairs
    is_target = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    is_target[torch.as_tensor(batch.target, device=edge_index.device).view(-1)] = True
    context = k_hop_pairs(edge_index[:, ~is_target[edge_index].any(0)], num_nodes, k_hop)
    pairs = torch.cat([pairs[:, is_target[pairs].any(0)], context], 1)
    return pairs[:, (pairs[0] * num_nodes + pairs[1]).argsort()]

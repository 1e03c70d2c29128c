"""Which nodes see each other when visibility ends after k hops."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data


def hop_visibility(batch: Data, k_hop: int, through_target: bool = False) -> Tensor:
    """Pairs of nodes at most ``k_hop`` undirected hops apart.

    Args:
        batch: A text graph or a batch of them.
        k_hop: The limit.
        through_target: Whether distances between context nodes count paths through the target; the target's own always
            do.

    Shapes:
        - **returns** (B, N, N) bool, N the largest graph
    """
    device = batch.edge_index.device
    ptr = batch.ptr if "ptr" in batch else torch.tensor([0, batch.num_nodes], device=device)
    size = ptr.diff()
    n = int(size.max()) if size.numel() else 0
    graph = torch.repeat_interleave(size)  # [sum of N_g]
    source, dest = batch.edge_index - ptr[graph[batch.edge_index]]
    adjacency = torch.zeros(size.numel(), n, n, device=device)
    adjacency[graph[batch.edge_index[0]], source, dest] = 1
    adjacency = torch.maximum(adjacency, adjacency.transpose(1, 2))
    if "target" not in batch or through_target:
        return within_hops(adjacency, k_hop)
    target = torch.as_tensor(batch.target, device=device).view(-1)
    which, place = graph[target], target - ptr[graph[target]]
    without = adjacency.clone()
    without[which, place] = 0
    without[which, :, place] = 0
    seen = within_hops(without, k_hop)
    from_target = within_hops(adjacency, k_hop)[which, place]
    seen[which, place] = from_target
    seen[which, :, place] = from_target
    return seen


def within_hops(adjacency: Tensor, k_hop: int) -> Tensor:
    """Shapes: **adjacency** (B, N, N) 0 or 1; **returns** (B, N, N) bool."""
    reached = torch.eye(adjacency.size(1), device=adjacency.device).expand_as(adjacency)
    for _ in range(k_hop):
        reached = ((reached @ adjacency + reached) > 0).to(adjacency.dtype)
    return reached > 0

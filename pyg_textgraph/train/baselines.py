"""What needs no training: answers that any model has to beat."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


def majority(y: Tensor, train: Tensor, nodes: Tensor) -> Tensor:
    """The most frequent class of the training nodes, for every node. Shapes: **returns** as **nodes**."""
    return torch.bincount(y[train]).argmax().expand(nodes.shape)


def neighbour_vote(data: Data, train: Tensor, nodes: Tensor) -> Tensor:
    """The most frequent class among a node's training neighbours, either direction; the majority where there are none.

    Shapes:
        - **train** (M,), **nodes** (n,) indices; **returns** (n,)
    """
    y: Tensor = data.y
    votes = torch.zeros(data.num_nodes or 0, int(y.max()) + 1)
    known = torch.zeros(votes.size(0), dtype=torch.bool)
    known[train] = True
    source, dest = to_undirected(data.edge_index, num_nodes=votes.size(0))
    from_known = known[source]
    votes.index_add_(0, dest[from_known], F.one_hot(y[source[from_known]], votes.size(1)).float())
    # ties and empty neighbourhoods go to the class that is more frequent in training
    votes += 0.5 * torch.bincount(y[train], minlength=votes.size(1)) / max(1, train.numel())
    return votes[nodes].argmax(-1)

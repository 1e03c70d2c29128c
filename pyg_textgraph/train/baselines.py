"""What needs no training: answers that any model has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import LabelPropagation
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


def label_propagation(
    data: Data,
    train: Tensor,
    nodes: Tensor,
    *,
    validation: Tensor | None = None,
    num_layers: Sequence[int] = (1, 2, 3, 5, 10, 20, 50),
    alpha: Sequence[float] = (0.5, 0.8, 0.9, 0.99),
) -> Tensor:
    """Training labels spread along edges of either direction (PyG's ``LabelPropagation``).

    Nodes that no training label reaches get the majority class.

    Args:
        data: The graph, with ``y``; only training labels are read, and validation ones to choose.
        train: Nodes whose labels are known.
        nodes: Nodes to answer.
        validation: Nodes by whose accuracy **num_layers** and **alpha** are chosen, the first best; without them there
            has to be one of each.
        num_layers: How often labels are passed on.
        alpha: Share of the neighbours in a node's new label.

    Shapes:
        - **train** (M,), **validation** (V,), **nodes** (n,) indices; **returns** (n,)

    Raises:
        ValueError: If there is something to choose but no **validation** nodes.
    """
    choices = [(layers, share) for layers in num_layers for share in alpha]
    if validation is None and len(choices) != 1:
        raise ValueError(f"label_propagation: {len(choices)} settings and no 'validation' nodes to choose by")
    y: Tensor = data.y
    size = data.num_nodes or 0
    edges = to_undirected(data.edge_index, num_nodes=size)
    known = torch.zeros(size, int(y[train].max()) + 1)
    known[train] = F.one_hot(y[train], known.size(1)).float()
    nobody = F.one_hot(majority(y, train, train[0]), known.size(1)).float()  # [C], where no label arrives
    best, answers = -1.0, nodes
    for layers, share in choices:
        score = LabelPropagation(layers, share)(known, edges)
        score[score.sum(-1) == 0] = nobody
        right = 0.0 if validation is None else float((score[validation].argmax(-1) == y[validation]).float().mean())
        if right > best:
            best, answers = right, score[nodes].argmax(-1)
    return answers

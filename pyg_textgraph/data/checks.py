"""Graphs and edges that are not what they should be, refused by name."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data


def check_one_graph(data: object, owner: str) -> None:
    """Refuses what is not one homogeneous graph.

    Raises:
        TypeError: Naming what it is.
    """
    if not isinstance(data, Data):
        raise TypeError(f"{owner}: expected a homogeneous 'Data', got '{type(data).__name__}'; see 'to_homogeneous()'")
    if isinstance(data, Batch):
        raise TypeError(f"{owner}: got a batch of graphs; apply the transform to every graph before batching")


def checked_edges(edge_index: Tensor | NDArray[Any], num_nodes: int, owner: str) -> NDArray[Any]:
    """An ``edge_index`` as a NumPy array.

    Args:
        edge_index: Integers of any kind.
        num_nodes: Nodes of the graph.
        owner: The function or class that messages name.

    Shapes: **edge_index** (2, E); **returns** (2, E)

    Raises:
        ValueError: If it is of another shape or no integers, or holds a node out of range.
    """
    kind = edge_index.dtype
    if isinstance(kind, torch.dtype):
        integers = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    else:
        integers = kind.kind in "iu"
    if edge_index.ndim != 2 or len(edge_index) != 2 or not integers:
        got = f"{kind} of shape {tuple(edge_index.shape)}"
        raise ValueError(f"{owner}: 'edge_index' is {got}, expected integers of shape (2, E)")
    index = edge_index.detach().cpu().numpy() if isinstance(edge_index, Tensor) else edge_index
    check_nodes(index, num_nodes, owner)
    return index


def check_nodes(index: NDArray[Any], num_nodes: int, owner: str) -> None:
    """Looks whether all nodes of an ``edge_index`` are nodes of the graph.

    Raises:
        ValueError: Naming the first that is not.
    """
    if index.size and not 0 <= index.min() <= index.max() < num_nodes:
        bad = index[(index < 0) | (index >= num_nodes)][0]
        raise ValueError(f"{owner}: 'edge_index' holds node {bad} but the graph has {num_nodes} nodes")

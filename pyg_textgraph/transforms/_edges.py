from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_edge_index

from pyg_textgraph.data.checks import check_nodes, check_one_graph

WEIGHT_KEYS = ("edge_weight", "edge_attr")
GUESSED_WORDS = ("node", "edge", "index", "batch")  # PyG reads sizes and offsets out of keys that contain one


@dataclass(frozen=True)
class Edges:
    """The edges of one graph as checked NumPy arrays, in the order of the input."""

    index: NDArray[np.int64]  # [2, E], row 0 = from, row 1 = to
    weight: NDArray[np.float64] | None  # [E]
    num_nodes: int
    device: torch.device

    def adjacency(self) -> csr_array[np.float64, tuple[int, int]]:
        """``A[u, v]`` without self-loops: 1 for an edge u → v, or the sum of the weights of all such edges."""
        keep = self.index[0] != self.index[1]
        source, target = self.index[:, keep]
        weight = np.ones(len(source)) if self.weight is None else self.weight[keep]
        matrix = csr_array((weight, (source, target)), shape=(self.num_nodes, self.num_nodes))
        if self.weight is None:
            matrix.data[:] = 1.0  # parallel edges count once
        return matrix


def read_edges(data: Data, owner: str, *, weighted: bool = False) -> Edges:
    """Reads ``edge_index``, or else the ``adj_t`` that ``ToSparseTensor`` leaves: the transposed adjacency matrix.

    Weights are ``edge_weight``, or else an ``edge_attr`` with one number per edge, or else the values of ``adj_t``.

    Args:
        data: One graph.
        owner: The transform's name, for messages.
        weighted: Whether to read weights.

    Raises:
        TypeError: If ``data`` is not a single homogeneous graph.
        ValueError: If edges or weights are missing, malformed, out of range, negative or not finite.
    """
    check_one_graph(data, owner)
    weight: Tensor | None = None
    if "edge_index" in data:
        index = data.edge_index
        if weighted:
            weight = _edge_weight(data, owner)
    elif "adj_t" in data:
        adj_t = data.adj_t
        if isinstance(adj_t, Tensor) and adj_t.layout == torch.sparse_coo:
            adj_t = adj_t.coalesce()  # to_edge_index would mark the caller's own tensor as coalesced
        index, weight = to_edge_index(adj_t)
        index = index.flip(0)
        unused = next((key for key in WEIGHT_KEYS if _one_per_edge(data, key)), None)
        if weighted and unused and weight.numel() > 0 and bool((weight == 1).all()):
            raise ValueError(f"{owner}: 'adj_t' has no weights but '{unused}' may; use ToSparseTensor(attr='{unused}')")
    else:
        raise ValueError(f"{owner}: the graph has neither 'edge_index' nor 'adj_t'")
    if not isinstance(index, Tensor) or index.dim() != 2 or index.size(0) != 2 or index.dtype != torch.long:
        got = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"{owner}: 'edge_index' must be torch.int64 of shape (2, num_edges), got {got}")
    if index.layout != torch.strided or index.is_meta:
        got = "a tensor on the meta device, without values" if index.is_meta else str(index.layout)
        raise ValueError(f"{owner}: 'edge_index' must be a dense tensor, got {got}")
    num_nodes = data.num_nodes
    if num_nodes is None:
        raise ValueError(f"{owner}: the number of nodes is unknown; set 'data.num_nodes'")
    if int(num_nodes) != num_nodes or num_nodes < 0:
        raise ValueError(f"{owner}: 'num_nodes' is {num_nodes}, expected an integer of 0 or more")

    edges = Edges(
        index=index.detach().cpu().numpy(),
        weight=_checked_weight(weight, index.size(1), owner) if weighted and weight is not None else None,
        num_nodes=int(num_nodes),
        device=index.device,
    )
    check_nodes(edges.index, edges.num_nodes, owner)
    return edges


def check_memory(num_bytes: int, owner: str, num_nodes: int, way_out: str) -> None:
    """Refuses a result that the machine's whole memory could not hold, before anything is allocated.

    Raises:
        MemoryError: Naming the size of the graph and of the result.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else sys.maxsize
    if num_bytes > total:
        raise MemoryError(
            f"{owner}: all pairs of {num_nodes} nodes need {num_bytes / 2**30:,.0f} GiB but the machine has "
            f"{total / 2**30:,.0f}; {way_out}"
        )


def check_attr_name(name: str, owner: str) -> str:
    """Returns ``name`` unless PyG would take a pair feature of that name for something else.

    Raises:
        ValueError: If ``name`` contains a word that PyG guesses sizes or offsets from.
    """
    if found := next((word for word in GUESSED_WORDS if word in name), None):
        raise ValueError(f"{owner}: attr_name '{name}' contains '{found}', which PyG gives a meaning; choose another")
    return name


def _one_per_edge(data: Data, key: str) -> bool:
    value = data.get(key)
    return isinstance(value, Tensor) and (value.dim() == 1 or (value.dim() == 2 and value.size(1) == 1))


def _edge_weight(data: Data, owner: str) -> Tensor:
    for key in WEIGHT_KEYS:
        if _one_per_edge(data, key):
            return data[key]
    raise ValueError(f"{owner}: weighted=True needs 'edge_weight' or 'edge_attr' with one number per edge")


def _checked_weight(weight: Tensor, num_edges: int, owner: str) -> NDArray[np.float64]:
    if weight.numel() != num_edges:
        got = f"shape {tuple(weight.shape)}"
        raise ValueError(f"{owner}: weighted=True needs one weight for each of the {num_edges} edges, got {got}")
    if weight.is_complex():
        raise ValueError(f"{owner}: edge weights must be real numbers, got {weight.dtype}")
    out = weight.detach().cpu().to(torch.float64).flatten().numpy()
    wrong = out[~(np.isfinite(out) & (out >= 0))]
    if wrong.size:
        raise ValueError(f"{owner}: edge weights must be finite and non-negative, got {wrong[0]}")
    with np.errstate(over="ignore"):
        if not np.isfinite(out.sum()):
            raise ValueError(f"{owner}: the edge weights add up to more than a double holds; scale them down")
    return out

"""The two views of one graph that ego sampling reads: whom a node touches, and which edges it keeps."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_textgraph.atomic import reading_folder, saving_folder
from pyg_textgraph.data.checks import checked_edges
from pyg_textgraph.data.mapped_array import mapped_array

Ints = NDArray[np.int64]
Array = NDArray[Any]  # of int32 where it fits, int64 otherwise


@dataclass(frozen=True, eq=False)
class CSRGraph:
    """A directed graph prepared for sampling.

    Hops go along the *neighbours*: distinct nodes at the other end of an edge of either direction, the node itself
    left out. Induced edges come from the *kept* edges: each edge is kept by the end with fewer neighbours, so the list
    of a hub is short and every edge between two nodes is met exactly once. DataLoader workers share the arrays with the
    process that made them, however they are started.

    Shapes:
        - **neighbor_ptr**, **kept_ptr** (N + 1,)
        - **neighbor** (sum of degrees,) ascending per node
        - **kept** (E,) edge ids, ascending per node; **kept_end** (E,) the edge's other end; **kept_out** (E,) whether
          the edge leaves the node that keeps it
        - **reach** (N,) sum of the neighbours' degrees, an estimate of what two hops cost
    """

    neighbor_ptr: Ints
    neighbor: Array
    kept_ptr: Ints
    kept: Array
    kept_end: Array
    kept_out: NDArray[np.bool_]
    reach: Ints
    _shared: ClassVar[tuple[Tensor, ...] | None] = None  # the arrays as tensors, once they are in shared memory
    _folder: ClassVar[Path | None] = None  # where the arrays are mapped from

    @classmethod
    def from_edge_index(cls, edge_index: Ints, num_nodes: int) -> CSRGraph:
        """Sorts the edges; close to linear in their number, done once per graph.

        Shapes:
            - **edge_index** (2, E), row 0 = from, row 1 = to

        Raises:
            ValueError: If an edge holds a node out of range.
        """
        small = np.int32 if num_nodes < 2**31 else np.int64
        source, end = checked_edges(edge_index, num_nodes, "CSRGraph").astype(small)
        neighbor_ptr, neighbor = _neighbors(source, end, num_nodes)
        degree = np.diff(neighbor_ptr).astype(small)
        out = degree[source] <= degree[end]
        keeper = np.where(out, source, end)
        kept = np.argsort(keeper, kind="stable")
        return cls(
            neighbor_ptr,
            neighbor,
            pointer(np.bincount(keeper, minlength=num_nodes)),
            kept.astype(np.int32 if kept.size < 2**31 else np.int64),
            np.where(out, end, source)[kept],
            out[kept],
            _reach(neighbor_ptr, neighbor, degree),
        )

    def save(self, folder: str | Path) -> None:
        """Writes one ``.npy`` file per array and ``graph.json``, all or nothing."""
        with saving_folder(folder) as new:
            for field in fields(self):
                np.save(new / f"{field.name}.npy", getattr(self, field.name))
            told = {field.name: str(getattr(self, field.name).dtype) for field in fields(self)}
            (new / "graph.json").write_text(json.dumps(told))

    @classmethod
    def load(cls, folder: str | Path) -> CSRGraph:
        """Opens a saved graph memory-mapped: all processes of a machine share it, and nothing is sorted again.

        Raises:
            FileNotFoundError: If the folder holds no graph.
            ValueError: If a file is damaged.
        """
        with reading_folder(folder) as folder:
            if not (folder / "graph.json").is_file():
                raise FileNotFoundError(f"CSRGraph: {folder / 'graph.json'} is missing; there is no whole graph")
            try:
                told = json.loads((folder / "graph.json").read_text())
                types = [np.dtype(told[field.name]).type for field in fields(cls)]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"CSRGraph: {folder / 'graph.json'} is damaged: {error}") from None
            names = [field.name for field in fields(cls)]
            arrays = [mapped_array(folder / f"{x}.npy", y, "CSRGraph") for x, y in zip(names, types, strict=True)]
        graph = cls(*arrays)
        found = (graph.neighbor.size, graph.kept.size, graph.kept_end.size, graph.kept_out.size, graph.kept_ptr.size)
        edges, nodes = int(graph.kept_ptr[-1]), graph.reach.size
        if found != (graph.neighbor_ptr[-1], edges, edges, edges, nodes + 1) or graph.num_nodes != nodes:
            raise ValueError(f"CSRGraph: the files in {folder} do not fit each other")
        object.__setattr__(graph, "_folder", Path(folder))
        return graph

    @property
    def num_nodes(self) -> int:
        return self.neighbor_ptr.size - 1


def _neighbors(source: Array, end: Array, num_nodes: int) -> tuple[Ints, Array]:
    """Distinct nodes at the other end of an edge: where each node's begin (N + 1,), and all of them."""
    distinct = source != end
    ends = (source[distinct], end[distinct])
    adjacency = sp.coo_array((np.ones(ends[0].size, np.bool_), ends), shape=(num_nodes, num_nodes)).tocsr()
    del ends, distinct
    adjacency = adjacency + adjacency.T.tocsr()
    adjacency.sort_indices()
    # from 2³¹ entries on SciPy's indices are int64, though a node's number is not that large
    return adjacency.indptr.astype(np.int64), adjacency.indices.astype(source.dtype, copy=False)


def _reach(ptr: Ints, neighbor: Array, degree: Array, step: int = 1 << 13) -> Ints:
    """The sum of the neighbours' degrees of every node; in parts, as one would be larger than the graph."""
    out = np.empty(degree.size, np.int64)
    for first in range(0, degree.size, step):
        part = ptr[first : first + step + 1]
        out[first : first + step] = np.diff(pointer(degree[neighbor[part[0] : part[-1]]])[part - part[0]])
    return out


def _from_shared(*tensors: Tensor) -> CSRGraph:
    graph = CSRGraph(*(x.numpy() for x in tensors))
    object.__setattr__(graph, "_shared", tensors)
    return graph


def _share(graph: CSRGraph) -> tuple[Any, tuple[Any, ...]]:
    """How a graph travels to another process: as its folder, or its arrays move to shared memory, once."""
    if graph._folder is not None:
        return CSRGraph.load, (graph._folder,)
    if graph._shared is None:
        shared = tuple(torch.from_numpy(getattr(graph, field.name)).share_memory_() for field in fields(graph))
        for field, tensor in zip(fields(graph), shared, strict=True):
            object.__setattr__(graph, field.name, tensor.numpy())
        object.__setattr__(graph, "_shared", shared)
    assert graph._shared is not None
    return _from_shared, graph._shared


ForkingPickler.register(CSRGraph, _share)


def pointer(count: Ints) -> Ints:
    """Where runs of the given lengths start, and the end of the last: (n,) -> (n + 1,)."""
    out = np.zeros(count.size + 1, np.int64)
    np.cumsum(count, out=out[1:])
    return out


def runs(ptr: Ints, node: Array) -> tuple[Ints, Ints]:
    """The places ``ptr[v]:ptr[v + 1]`` of every node in turn, and how many each has.

    Shapes:
        - **node** (n,)
        - **returns** (total,) and (n,)
    """
    start = ptr[node]
    count = ptr[node + 1] - start
    place = np.repeat(start - pointer(count)[:-1], count)
    place += np.arange(place.size)
    return place, count

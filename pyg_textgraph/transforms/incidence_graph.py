from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import E_KEYS, N_KEYS
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data.text_attributed_data import TextAttributedData, rows_for_more_nodes
from pyg_textgraph.transforms._edges import read_edges

NODE_TEXT, EDGE_TEXT = ("text", "text_nodes"), ("edge_text", "text_edges")
DROPPED = (*sorted(N_KEYS | E_KEYS), "adj_t", *EDGE_TEXT)
TOO_EARLY = ("input_ids", "num_tokens", "spd", "rrwp", "pair_index", "magnetic_eigvals")


@functional_transform("incidence_graph")
class IncidenceGraph(BaseTransform):
    """Makes every edge a node of its own (functional name: :obj:`incidence_graph`).

    An edge u → v becomes a node e with edges u → e → v, so that relations have a text and models without edge features
    read them. The nodes come first, then one node per edge in the order in which the edges first appear. An edge
    node's text is its relation text, ``data.edge_text`` or ``data.text_edges``, or ``"(i, j)"`` where that is missing
    or empty.

    - Parallel edges with the same text are one edge.
    - The two directions of an undirected edge share one node, linked both ways and named with the smaller index first,
      if their texts are equal too: otherwise they are two relations.
    - Self-loops without relation text are dropped; one with a text becomes u → e → u.
    - Without node texts only the structure is made.
    - The attributes that PyG itself takes for node features (``x``, ``pos``, …), and what has one row per edge, are
      dropped: edge nodes have none. What else has one row per node gets rows that tell nothing for edge nodes: −1 in
      integers such as ``y``, NaN, False in masks.

    Args:
        merge_reciprocal: Whether both directions of an undirected edge become one node.

    Shapes:
        - **data.edge_index** (2, 2·E'), E' = distinct directed edges: all u → e, then all e → v
        - **data.text** (or ``text_nodes``) one string per node
        - **data.relation_mask** (N + edge nodes,) bool, true for edge nodes

    Raises:
        ValueError: If there is not one text per node or edge, if there are edge texts but no node texts, or if the
            graph has been tokenized or has structural features already.
    """

    def __init__(self, merge_reciprocal: bool = True) -> None:
        self.merge_reciprocal = merge_reciprocal

    def forward(self, data: Data) -> Data:
        edges = read_edges(data, "IncidenceGraph")
        if early := [key for key in TOO_EARLY if key in data]:
            raise ValueError(f"IncidenceGraph: the graph has '{early[0]}', which edge nodes lack; apply it before")
        source, target = edges.index
        nodes, text_key = _texts(data, NODE_TEXT, edges.num_nodes)
        relations, _ = _texts(data, EDGE_TEXT, len(source))
        if relations is not None and "edge_index" not in data:
            raise ValueError("IncidenceGraph: edge texts need the order of 'edge_index', and only 'adj_t' is there")
        if relations is not None and nodes is None:
            raise ValueError("IncidenceGraph: the graph has edge texts but no 'text' for its nodes")

        number = {name: i for i, name in enumerate(dict.fromkeys(["", *(relations or [])]))}
        label = np.zeros(len(source), dtype=np.int64)  # [E], 0 = no relation text
        if relations is not None:
            label[:] = [number[name] for name in relations]
        rows = np.stack([source, target, label], axis=1)[(source != target) | (label > 0)]
        rows = rows[_distinct(rows)[0]]  # [E', 3]
        keys = np.column_stack([np.sort(rows[:, :2], axis=1), rows[:, 2]]) if self.merge_reciprocal else rows
        first, node = _distinct(keys)  # [edge nodes], [E']
        both_ways = np.bincount(node, minlength=len(first)) == 2
        ends = np.where(both_ways[:, None], keys[first], rows[first])  # [edge nodes, 3]

        node = node + edges.num_nodes
        edge_index = np.stack([np.concatenate([rows[:, 0], node]), np.concatenate([node, rows[:, 1]])])
        known = TextAttributedData.from_data(data)
        for key in [key for key, _ in data if key in DROPPED or known.is_edge_attr(key)]:
            del data[key]
        data.update({key: rows for key, rows in rows_for_more_nodes(known, len(first)).items() if key in data})
        data.edge_index = torch.from_numpy(edge_index).to(edges.device)
        data.num_nodes = edges.num_nodes + len(first)
        data.relation_mask = torch.arange(data.num_nodes, device=edges.device) >= edges.num_nodes
        if nodes is not None:
            text = list(number)
            data[text_key] = [*nodes, *(text[name] or f"({i}, {j})" for i, j, name in ends.tolist())]
        return data

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(merge_reciprocal={self.merge_reciprocal})"


def _texts(data: Data, keys: Sequence[str], expected: int) -> tuple[list[str] | None, str]:
    """The first of the attributes ``keys`` that is there, ``None`` entries as empty texts, and its name."""
    key = next((key for key in keys if key in data and data[key] is not None), None)
    if key is None:
        return None, keys[0]
    if len(data[key]) != expected:
        raise ValueError(f"IncidenceGraph: '{key}' holds {len(data[key])} texts, expected {expected}")
    wrong = next((i for i, text in enumerate(data[key]) if not isinstance(text, str | None)), None)
    if wrong is not None:
        raise TypeError(f"IncidenceGraph: '{key}' holds {type(data[key][wrong]).__name__} at {wrong}, expected str")
    return [text or "" for text in data[key]], key


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the first of each kind of row, ascending; and for every row the number of its kind."""
    _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return np.sort(first), np.argsort(np.argsort(first))[kind.reshape(-1)]

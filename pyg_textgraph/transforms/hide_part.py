"""Parts of a graph taken out, with the actions that put them back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data.graph_actions import Action, AddEdge, AddNode, GraphGrammar, checked_graph
from pyg_textgraph.data.text_attributed_data import TextAttributedData

Named = tuple[int, int, str]


class _Hide(BaseTransform):
    """What both share: what is drawn depends on the graph and the seed only."""

    def __init__(self, grammar: GraphGrammar, may_hide: Callable[[Data], Tensor] | None = None, seed: int = 0) -> None:
        self.grammar, self.may_hide, self.seed = grammar, may_hide, seed

    def _read(self, data: Data) -> tuple[TextAttributedData, list[Named]]:
        graph = checked_graph(data, begins=True)
        names = self.grammar.edge_names(graph)
        return graph, [(u, v, name) for (u, v), name in zip(graph.edge_index.T.tolist(), names, strict=True)]

    def _shuffled(self, graph: TextAttributedData, edges: list[Named], possible: Sequence[int]) -> list[int]:
        key = crc32(repr((graph.text, edges)).encode(errors="surrogatepass"))
        return [possible[i] for i in np.random.default_rng([self.seed, key]).permutation(len(possible)).tolist()]

    def _candidates(self, graph: TextAttributedData, size: int) -> list[bool]:
        if self.may_hide is None:
            return [True] * size
        mask = self.may_hide(graph)
        if mask.dtype != torch.bool or mask.shape != (size,):
            got = f"{mask.dtype} of shape {tuple(mask.shape)}"
            raise ValueError(f"{type(self).__name__}: 'may_hide' returned {got}, expected bool of shape ({size},)")
        return mask.tolist()

    def _kind(self, edge: Named) -> Named:
        """The same for both directions of an edge that one action writes."""
        u, v, name = edge
        return (min(u, v), max(u, v), name) if self.grammar.is_symmetric(name) else edge

    def _kept(self, graph: TextAttributedData, edges: list[Named]) -> TextAttributedData:
        ends = torch.tensor([edge[:2] for edge in edges], dtype=torch.long).view(-1, 2)
        graph.edge_index = ends.T.contiguous().to(graph.edge_index.device)
        if self.grammar.relations:
            graph.text_edges = [edge[2] for edge in edges]
        return graph

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(seed={self.seed})"


@functional_transform("hide_edges")
class HideEdges(_Hide):
    """Takes edges out of a graph and tells the actions that restore them (functional name: :obj:`hide_edges`).

    Both directions of a symmetric relation, and edges that are there twice, are one. Which ones are drawn depends on
    the graph and the seed only.

    Args:
        grammar: Which edges can be written; others stay.
        may_hide: Tells of a graph which of its edges may be hidden, (E,) bool; all by default.
        num_edges: How many.
        seed: Of the draw.

    Shapes:
        - **data.actions** a list of :class:`~pyg_textgraph.data.AddEdge`, sources and targets as in the graph

    Raises:
        ValueError: If too few edges can be written, or the graph has what written ones would lack.
    """

    def __init__(
        self,
        grammar: GraphGrammar,
        may_hide: Callable[[Data], Tensor] | None = None,
        num_edges: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(grammar, may_hide, seed)
        if num_edges < 1:
            raise ValueError(f"HideEdges: 'num_edges' is {num_edges}, expected at least 1")
        self.num_edges = num_edges

    def forward(self, data: Data) -> TextAttributedData:
        graph, edges = self._read(data)
        first: dict[Named, int] = {}
        for i, (edge, possible) in enumerate(zip(edges, self._candidates(graph, len(edges)), strict=True)):
            if possible and edge[2] in self.grammar.names:
                first.setdefault(self._kind(edge), i)
        hidden: list[Named] = []
        for i in self._shuffled(graph, edges, list(first.values())):
            hidden = self._restoring(graph, edges, [*hidden, edges[i]]) or hidden
            if len(hidden) == self.num_edges:
                break
        else:
            raise ValueError(f"HideEdges: {len(hidden)} edges may be hidden, expected at least {self.num_edges}")
        graph = self._without(graph, edges, hidden)
        graph.actions = [AddEdge(*edge) for edge in hidden]
        return graph

    def _restoring(self, graph: TextAttributedData, edges: list[Named], hidden: list[Named]) -> list[Named]:
        """An order in which the grammar allows to write hidden edges again; empty if there is none."""
        left, order = list(hidden), []
        while left:
            state = self._without(graph, edges, left)
            edge = next((edge for edge in left if self.grammar.allows(state, AddEdge(*edge))), None)
            if edge is None:
                return []
            left.remove(edge)
            order.append(edge)
        return order

    def _without(self, graph: TextAttributedData, edges: list[Named], hidden: list[Named]) -> TextAttributedData:
        kinds = {self._kind(edge) for edge in hidden}
        return self._kept(copy.copy(graph), [edge for edge in edges if self._kind(edge) not in kinds])


@functional_transform("hide_node")
class HideNode(_Hide):
    """Takes a node and its edges out of a graph and tells the actions that restore it (functional name:
    :obj:`hide_node`).

    The node's text is the first action, its edges follow in the order of the graph. The nodes after it move up, and the
    restored one is the last. Which one is drawn depends on the graph and the seed only.

    Args:
        grammar: Must be able to write the node's edges.
        may_hide: Tells of a graph which of its nodes may be hidden, (N,) bool; all by default.
        seed: Of the draw.

    Shapes:
        - **data.actions** a list: :class:`~pyg_textgraph.data.AddNode`, then one
          :class:`~pyg_textgraph.data.AddEdge` per edge

    Raises:
        ValueError: If no node may be hidden, an edge's relation is not the grammar's, or the graph has what written
            nodes would lack.
    """

    def forward(self, data: Data) -> TextAttributedData:
        graph, edges = self._read(data)
        n = len(graph.text)
        possible = [node for node, yes in enumerate(self._candidates(graph, n)) if yes]
        if not possible:
            raise ValueError(f"HideNode: none of {n} nodes may be hidden, expected at least one")
        node = self._shuffled(graph, edges, possible)[0]
        place = {old: new for new, old in enumerate([*(v for v in range(n) if v != node), node])}
        moved = [(place[u], place[v], name) for u, v, name in edges]
        cut = dict.fromkeys(self._kind(edge) for edge in moved if n - 1 in edge[:2])
        if unknown := next((name for _, _, name in cut if name not in self.grammar.names), None):
            raise ValueError(f"HideNode: node {node} has an edge {unknown!r}, expected one of {self.grammar.names}")
        actions: list[Action] = [AddNode(graph.text[node]), *(AddEdge(*edge) for edge in cut)]
        graph.text = [text for i, text in enumerate(graph.text) if i != node]
        graph.num_nodes = n - 1
        if graph.get("mentions") is not None:
            graph.mentions = [place[v] for v in torch.as_tensor(graph.mentions).view(-1).tolist() if v != node]
        graph = self._kept(graph, [edge for edge in moved if n - 1 not in edge[:2]])
        graph.actions = actions
        return graph

"""How a text graph is written: one action after the other, and which of them are allowed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import E_KEYS, N_KEYS

from pyg_textgraph.data.text_attributed_data import EDGE_TEXT_KEYS, PAIR_KEYS, TOKEN_KEYS, TextAttributedData
from pyg_textgraph.data.tokenization import node_texts

# what would lack a row for a written node or edge, or would be wrong after it
_FIXED = (*sorted((N_KEYS | E_KEYS) - {"edge_index"}), "adj_t", *PAIR_KEYS, *TOKEN_KEYS, "num_tokens", "relation_mask",
          "target")  # fmt: skip


@dataclass(frozen=True)
class AddNode:
    """A new node, after all others, without edges.

    Args:
        text: Its text.
    """

    text: str


@dataclass(frozen=True)
class AddEdge:
    """A new edge between nodes that are there.

    Args:
        source: Where it begins.
        target: Where it ends.
        relation: Its name; empty where edges have none.
    """

    source: int
    target: int
    relation: str = ""


@dataclass(frozen=True)
class Stop:
    """The graph is done."""


Action = AddNode | AddEdge | Stop


@dataclass(frozen=True)
class GraphGrammar:
    """Which actions a graph allows; stopping is always among them.

    An edge never repeats one of the same relation. Relations that the graph has and the grammar has not are read, but
    not written.

    Args:
        relations: Names that a new edge may have; without any, edges have no names (``data.text_edges``).
        symmetric: Relations that hold both ways: one action writes both directions. True: all of them.
        add_nodes: Whether there may be new nodes.
        add_edges: Whether there may be new edges.
        node_texts: The texts that a new node may have; None allows any.
        max_text_tokens: Most tokens of a new node's text, where any is allowed.
        self_loops: Whether an edge may end where it begins.
        parallel: Whether an edge may join two nodes that another relation joins in the same direction.
        rule: Tells of a graph which further edges are allowed, e.g. by the kinds of their ends.

    Shapes: **rule** returns bool, (R, N, N) or what broadcasts to it; R = relations, or 1 without any

    Raises:
        ValueError: If a name or text is empty or there twice, or **symmetric** holds an unknown relation.
    """

    relations: tuple[str, ...] = ()
    symmetric: frozenset[str] | bool = False
    add_nodes: bool = True
    add_edges: bool = True
    node_texts: tuple[str, ...] | None = None
    max_text_tokens: int = 32
    self_loops: bool = False
    parallel: bool = True
    rule: Callable[[Data], Tensor] | None = None

    def __post_init__(self) -> None:
        for field in ("relations", "node_texts"):
            values = getattr(self, field)
            if values is None:
                continue
            object.__setattr__(self, field, tuple(values))
            if any(not value.strip() for value in values) or len(set(values)) < len(values):
                raise ValueError(f"GraphGrammar: '{field}' is {list(values)}, expected different texts, none empty")
        if self.node_texts == ():
            raise ValueError("GraphGrammar: 'node_texts' is empty; allow no new nodes by add_nodes=False")
        if not isinstance(self.symmetric, bool):
            object.__setattr__(self, "symmetric", frozenset(self.symmetric))
            if unknown := self.symmetric - set(self.names):
                raise ValueError(f"GraphGrammar: 'symmetric' holds {sorted(unknown)}, expected any of {self.names}")
        if self.max_text_tokens < 1:
            raise ValueError(f"GraphGrammar: 'max_text_tokens' is {self.max_text_tokens}, expected at least 1")

    @property
    def names(self) -> tuple[str, ...]:
        """The relations; an empty name where edges have none."""
        return self.relations or ("",)

    def is_symmetric(self, relation: str) -> bool:
        """Whether a relation holds both ways."""
        return self.symmetric if isinstance(self.symmetric, bool) else relation in self.symmetric

    def edge_names(self, data: Data) -> list[str]:
        """One name per edge of a graph, empty where edges have none.

        Raises:
            ValueError: If the graph's edges have names and the grammar's not, or the other way round.
        """
        num_edges = 0 if data.edge_index is None else data.edge_index.size(1)
        names = next((data[key] for key in ("text_edges", "edge_text") if data.get(key) is not None), None)
        if names is None or (not len(names) and not num_edges):
            if self.relations and num_edges:
                raise ValueError("GraphGrammar: it has 'relations', but the graph's edges have no 'text_edges'")
            return [""] * num_edges
        if not self.relations:
            raise ValueError("GraphGrammar: the graph's edges have names, but the grammar has no 'relations'")
        if len(names) != num_edges:
            raise ValueError(f"GraphGrammar: the graph has {len(names)} names of edges, expected {num_edges}")
        return list(names)

    def open_edges(self, data: Data) -> Tensor:
        """Which edges may be written next.

        Shapes:
            - **returns** (R, N, N) bool: relation, source, target
        """
        n, names = int(data.num_nodes or 0), self.names
        out = torch.ones(len(names), n, n, dtype=torch.bool)
        if not self.add_edges:
            return torch.zeros_like(out)
        present, joined = torch.zeros_like(out), torch.zeros_like(out)  # by this relation, by another one
        number = {name: i for i, name in enumerate(names)}
        ends = data.edge_index.T.tolist() if data.edge_index is not None else []
        for (u, v), name in zip(ends, self.edge_names(data), strict=True):
            own = number.get(name, -1)
            joined[[i for i in range(len(names)) if i != own], u, v] = True
            if own >= 0:
                present[own, u, v] = True
        if not self.self_loops:
            out &= ~torch.eye(n, dtype=torch.bool)
        if not self.parallel:
            out &= ~joined
        if self.rule is not None:
            out &= self.rule(data).to(out.device)
        for i, name in enumerate(names):
            if self.is_symmetric(name):  # both directions are written, so both must be allowed and one be missing
                out[i] &= out[i].T & ~(present[i] & present[i].T)
            else:
                out[i] &= ~present[i]
        return out

    def allows(self, data: Data, action: Action) -> bool:
        """Whether an action is allowed; of an edge, what :meth:`open_edges` says of it, without all the others."""
        if isinstance(action, AddNode):
            fits = self.node_texts is None or action.text in self.node_texts
            return self.add_nodes and fits and bool(action.text.strip())
        return self._allows_edge(data, action) if isinstance(action, AddEdge) else True

    def _allows_edge(self, data: Data, edge: AddEdge) -> bool:
        n, ways = int(data.num_nodes or 0), self._ways(edge)
        inside = 0 <= edge.source < n and 0 <= edge.target < n and edge.relation in self.names
        if not inside or not self.add_edges or (edge.source == edge.target and not self.self_loops):
            return False
        there: dict[tuple[int, int], set[str]] = {way: set() for way in ways}
        ends = data.edge_index.T.tolist() if data.edge_index is not None else []
        for (u, v), name in zip(ends, self.edge_names(data), strict=True):
            if (u, v) in there:
                there[u, v].add(name)
        if all(edge.relation in names for names in there.values()):
            return False
        if not self.parallel and any(names - {edge.relation} for names in there.values()):
            return False
        if self.rule is None:
            return True
        rule = self.rule(data).broadcast_to(len(self.names), n, n)[self.names.index(edge.relation)]
        return all(bool(rule[way]) for way in ways)

    def _ways(self, edge: AddEdge) -> list[tuple[int, int]]:
        """The directions that an edge is written in."""
        way = (edge.source, edge.target)
        return [way, way[::-1]] if self.is_symmetric(edge.relation) and edge.source != edge.target else [way]

    def check(self, data: Data, action: Action) -> None:
        """Refuses what is not allowed.

        Raises:
            ValueError: Naming the action.
        """
        if not self.allows(data, action):
            raise ValueError(f"GraphGrammar: {action} is not allowed in a graph of {data.num_nodes} nodes")

    def apply(self, data: Data, action: Action) -> TextAttributedData:
        """A copy of a graph after an action.

        Raises:
            ValueError: If the action is not allowed, or the graph has what a written node or edge would lack.
        """
        self.check(data, action)
        out = checked_graph(data)
        if isinstance(action, AddNode):
            out.text = [*out.text, action.text]
            out.num_nodes = len(out.text)
        elif isinstance(action, AddEdge):
            names, present = self.edge_names(data), set()
            for (u, v), name in zip(out.edge_index.T.tolist(), names, strict=True):
                present.add((u, v, name))
            new = [way for way in self._ways(action) if (*way, action.relation) not in present]
            out.edge_index = torch.cat([out.edge_index, out.edge_index.new_tensor(new).T], 1)
            if self.relations:
                out.text_edges = [*names, *(action.relation for _ in new)]
        return out


def checked_graph(data: Data, *, begins: bool = False) -> TextAttributedData:
    """A copy of a graph to write in, with ``text`` and ``edge_index``.

    Args:
        data: The graph.
        begins: Whether writing begins here; sizes tell only then what belongs to nodes or edges.

    Raises:
        ValueError: If it has no texts, or attributes of nodes, edges or pairs that a written one would lack.
    """
    out = TextAttributedData.from_data(data)
    fixed = [key for key in _FIXED if key in out]
    if begins:
        fixed += [key for key, value in out if _has_rows(out, key, value)]
    if fixed:
        raise ValueError(f"the graph has '{fixed[0]}', which written nodes or edges lack; write before it is added")
    out.text = node_texts(out)
    if "edge_index" not in out or out.edge_index is None:
        out.edge_index = torch.empty(2, 0, dtype=torch.long)
    if "edge_text" in out:
        out.text_edges = out.edge_text
        del out["edge_text"]
    out.num_nodes = len(out.text)
    out.validate()
    return out


def _has_rows(data: TextAttributedData, key: str, value: object) -> bool:
    """Whether an attribute belongs to nodes or edges; one number alone belongs to the graph."""
    if key in ("edge_index", "text", *EDGE_TEXT_KEYS) or (isinstance(value, Tensor) and value.numel() == 1):
        return False
    return bool(data.is_node_attr(key) or data.is_edge_attr(key))


def action_steps(data: Data, grammar: GraphGrammar) -> list[TextAttributedData]:
    """The graphs that a writer sees on its way, each with its next action.

    Args:
        data: A graph with ``actions``, what is to be written, in order.
        grammar: Allows them.

    Returns:
        One graph per action, and one more for the stop: ``action`` is what comes next in each.

    Raises:
        ValueError: If the graph has no ``actions``, or one is not allowed.
    """
    if "actions" not in data:
        raise ValueError("action_steps: the graph has no 'actions', expected a list of them (HideEdges, HideNode)")
    state = checked_graph(data, begins=True)
    del state["actions"]
    steps = []
    for action in [*data.actions, Stop()]:
        step = copy.copy(state)
        step.action = action
        steps.append(step)
        if not isinstance(action, Stop):
            state = grammar.apply(state, action)
    return steps


# graphs with actions can be saved, and loaded with torch's safe loading
torch.serialization.add_safe_globals([AddNode, AddEdge, Stop])

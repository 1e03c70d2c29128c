"""Questions about the shape of small graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np

from pyg_textgraph.datasets.question_graphs import Form, GraphQuestion, QuestionGraphs, Split, draw_split

Task = Literal[
    "node_count",
    "edge_count",
    "cycle_check",
    "triangle_counting",
    "node_degree",
    "connected_nodes",
    "reachability",
    "edge_existence",
    "shortest_path",
]
Family = Literal["erdos_renyi", "barabasi_albert", "sbm", "star", "path", "complete"]
YES_NO = ("yes", "no")
NO_PATH = "no path"
NO_NODES = "none"
SMALLEST, LARGEST = 5, 19


def _yes(value: bool) -> str:
    return YES_NO[0] if value else YES_NO[1]


def _neighbours(graph: nx.Graph, node: int) -> str:
    return ", ".join(map(str, sorted(graph[node]))) or NO_NODES


def _distance(graph: nx.Graph, source: int, target: int) -> str:
    return str(nx.shortest_path_length(graph, source, target)) if nx.has_path(graph, source, target) else NO_PATH


# question, and its answer by graph and mentioned nodes
TASKS: dict[Task, tuple[str, int, Callable[..., str]]] = {
    "node_count": ("How many nodes are in this graph?", 0, lambda g: str(g.number_of_nodes())),
    "edge_count": ("How many edges are in this graph?", 0, lambda g: str(g.number_of_edges())),
    "cycle_check": ("Is there a cycle in this graph?", 0, lambda g: _yes(not nx.is_forest(g))),
    "triangle_counting": (
        "How many triangles are in this graph?",
        0,
        lambda g: str(sum(nx.triangles(g).values()) // 3),
    ),
    "node_degree": ("What is the degree of node {}?", 1, lambda g, u: str(g.degree[u])),
    "connected_nodes": ("Which nodes are connected to node {}, in increasing order?", 1, _neighbours),
    "reachability": ("Is there a path from node {} to node {}?", 2, lambda g, u, v: _yes(nx.has_path(g, u, v))),
    "edge_existence": ("Is node {} connected to node {} by an edge?", 2, lambda g, u, v: _yes(g.has_edge(u, v))),
    "shortest_path": ("How long is the shortest path from node {} to node {}?", 2, _distance),
}
CLOSED = ("cycle_check", "reachability", "edge_existence")


class GraphQA(QuestionGraphs):
    """Nine questions about undirected graphs of 5 to 19 nodes (`Fatemi et al., 2023
    <https://arxiv.org/abs/2310.04560>`_); a node's text is its number.

    Answers are numbers, ``"yes"`` and ``"no"``, the neighbours in increasing order (``"none"`` if there are none), or
    ``"no path"``. Their frequencies are what the family gives: a majority answer is right more often than one might
    expect, so compare with it.

    - ``"erdos_renyi"`` every edge with one probability per graph, uniform in [0, 1]
    - ``"barabasi_albert"`` 1 … n−1 edges per new node
    - ``"sbm"`` two to four blocks; edges with one probability within, another one between them
    - ``"star"``, ``"path"``, ``"complete"`` one graph per number of nodes, up to the nodes' names

    No validation or test question has been asked of the same graph in training, except in the last three families,
    which are too small. (Small empty and complete graphs are therefore rarer there.)

    Args:
        task: The question.
        split: Train, validation or test.
        family: Where graphs come from.
        form: See :class:`QuestionGraphs`.
        sizes: Graphs per split; one question each.
        seed: Of everything.
        transform: Applied at every access.

    Raises:
        ValueError: If an argument is unknown.
    """

    def __init__(
        self,
        task: Task,
        split: Split = "train",
        family: Family = "erdos_renyi",
        form: Form = "standard",
        *,
        sizes: Sequence[int] = (1000, 500, 500),
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        for name, value, known in (("task", task, tuple(TASKS)), ("family", family, get_args(Family))):
            if value not in known:
                raise ValueError(f"GraphQA: '{name}' is {value!r}, expected one of {known}")
        distinct = family not in ("star", "path", "complete")
        questions = draw_split(partial(_draw, task, family), f"GraphQA {task} {family}", split, sizes, seed, distinct)
        super().__init__(questions, form, YES_NO if task in CLOSED else None, transform)


def _draw(task: Task, family: Family, rng: np.random.Generator, number: int) -> list[GraphQuestion]:
    graph = random_graph(family, rng)
    template, mentions, answer = TASKS[task]
    nodes = tuple(rng.choice(graph.number_of_nodes(), mentions, replace=False).tolist())
    edges = tuple(sorted(edge for u, v in graph.edges for edge in ((u, v), (v, u))))
    text = tuple(str(node) for node in range(graph.number_of_nodes()))
    return [GraphQuestion(text, edges, template.format(*nodes), answer(graph, *nodes), nodes or None, kind=task)]


def random_graph(family: Family, rng: np.random.Generator) -> nx.Graph:
    """A graph on 0 … n−1, n uniform in 5 … 19, whose nodes' names say nothing about its shape."""
    n = int(rng.integers(SMALLEST, LARGEST + 1))
    if family == "erdos_renyi":
        pairs = _pairs(np.full((n, n), rng.random()), rng)
    elif family == "sbm":
        block = rng.integers(int(rng.integers(2, 5)), size=n)
        within, between = rng.random(2)
        pairs = _pairs(np.where(block[:, None] == block, within, between), rng)
    elif family == "barabasi_albert":
        m = int(rng.integers(1, n))
        pairs = list(nx.barabasi_albert_graph(n, m, seed=int(rng.integers(2**31))).edges)
    else:
        made = {"star": partial(nx.star_graph, n - 1), "path": partial(nx.path_graph, n)}
        pairs = list(made.get(family, partial(nx.complete_graph, n))().edges)
    name = rng.permutation(n).tolist()
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((name[u], name[v]) for u, v in pairs)
    return graph


def _pairs(probability: np.ndarray[Any, Any], rng: np.random.Generator) -> list[tuple[int, int]]:
    u, v = np.nonzero(np.triu(rng.random(probability.shape) < probability, k=1))
    return list(zip(u.tolist(), v.tolist(), strict=True))

"""Are two letters in one component?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np

from pyg_textgraph.datasets.question_graphs import Form, GraphQuestion, QuestionGraphs, Split, draw_split


class Connectivity(QuestionGraphs):
    """Undirected graphs of two to four components whose nodes are letters; half of the questions have the answer yes.

    Args:
        split: Train, validation or test.
        form: See :class:`QuestionGraphs`.
        num_nodes: The smallest and largest number of nodes.
        sizes: Graphs per split; one question each.
        seed: Of everything.
        transform: Applied at every access.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        split: Split = "train",
        form: Form = "standard",
        *,
        num_nodes: tuple[int, int] = (6, 12),
        sizes: Sequence[int] = (1000, 200, 500),
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        low, high = num_nodes
        if not 4 <= low <= high <= len(ascii_uppercase):
            raise ValueError(f"Connectivity: 'num_nodes' is {num_nodes}, expected 4 ≤ smallest ≤ largest ≤ 26")

        def draw(rng: np.random.Generator, number: int) -> list[GraphQuestion]:
            return [_draw(rng, int(rng.integers(low, high + 1)), number % 2 == 0)]

        questions = draw_split(draw, f"Connectivity {low} {high}", split, sizes, seed)
        super().__init__(questions, form, ("yes", "no"), transform)


def _draw(rng: np.random.Generator, n: int, same: bool) -> GraphQuestion:
    parts = int(rng.integers(2, min(4, n // 2) + 1))
    # every component has two nodes at least
    component = rng.permutation(
        np.concatenate([np.repeat(np.arange(parts), 2), rng.integers(parts, size=n - 2 * parts)])
    )
    edges: set[tuple[int, int]] = set()
    for part in range(parts):
        nodes = rng.permutation(np.flatnonzero(component == part)).tolist()
        edges |= {(nodes[i], nodes[int(rng.integers(i))]) for i in range(1, len(nodes))}  # a random tree
        for _ in range(int(rng.integers(len(nodes)))):
            u, v = rng.choice(nodes, 2, replace=False).tolist()
            edges.add((u, v))
    first = int(rng.integers(n))
    others = np.flatnonzero((component == component[first]) == same)
    second = int(rng.choice(others[others != first]))
    letters = [ascii_uppercase[i] for i in rng.choice(len(ascii_uppercase), n, replace=False)]
    return GraphQuestion(
        text=tuple(letters),
        edges=tuple(sorted({edge for u, v in edges for edge in ((u, v), (v, u))})),
        question=f"Is {letters[first]} connected to {letters[second]}?",
        answer="yes" if same else "no",
        mentions=(first, second),
        kind="connectivity",
    )

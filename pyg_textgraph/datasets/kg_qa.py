"""Yes-or-no questions about who does what with which tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyg_textgraph.datasets._names import MEN, PROJECTS, RESOURCES, WOMEN
from pyg_textgraph.datasets.question_graphs import Form, GraphQuestion, QuestionGraphs, Split, draw_split

REPORTS_TO, WORKS_ON, REQUIRES, CAN_ACCESS = "REPORTS_TO", "WORKS_ON", "REQUIRES", "CAN_ACCESS"
TRIES = 400


class Organisation:
    """People, projects and resources by number, and what holds between them."""

    def __init__(self, rng: np.random.Generator) -> None:
        n = int(rng.integers(30, 51))
        kind = rng.choice(3, n, p=[0.55, 0.20, 0.25])
        self.people, self.projects, self.resources = (np.flatnonzero(kind == k).tolist() for k in range(3))
        self.text = [""] * n
        first_names = sorted((*WOMEN, *MEN))
        for nodes, names, form in (
            (self.people, first_names, "{}, person"),
            (self.projects, PROJECTS, "{}, project"),
            (self.resources, RESOURCES, "{}, resource"),
        ):
            chosen = rng.choice(len(names), min(len(nodes), len(names)), replace=False)
            for node, name in zip(nodes, chosen, strict=False):
                self.text[node] = form.format(names[name])
        self.facts: dict[str, dict[int, set[int]]] = {
            name: {i: set() for i in range(n)} for name in (REPORTS_TO, WORKS_ON, REQUIRES, CAN_ACCESS)
        }
        order = rng.permutation(self.people).tolist()
        for i, person in enumerate(order[1:], 1):
            self.facts[REPORTS_TO][person].add(order[int(rng.integers(i))])
        self._link(WORKS_ON, self.people, self.projects, 0.5, rng)
        self._link(REQUIRES, self.projects, self.resources, 0.4, rng)
        self._link(CAN_ACCESS, self.people, self.resources, 0.4, rng)

    def _link(self, name: str, sources: list[int], targets: list[int], p: float, rng: np.random.Generator) -> None:
        """Every source gets a geometric number of targets, 1/p on average and as many as there are at most."""
        for source in sources:
            count = min(int(rng.geometric(p)), len(targets))
            self.facts[name][source].update(rng.choice(targets, count, replace=False).tolist() if count else ())

    @property
    def usable(self) -> bool:
        return all(self.text) and min(map(len, (self.people, self.projects, self.resources))) >= 2

    def name(self, node: int) -> str:
        return self.text[node].split(",")[0]

    def managers(self, person: int) -> set[int]:
        """Everyone above a person."""
        above: set[int] = set()
        while following := self.facts[REPORTS_TO][person] - above:
            (person,) = following
            above.add(person)
        return above

    def needs(self, person: int) -> set[int]:
        """What the person's projects require."""
        return {resource for project in self.facts[WORKS_ON][person] for resource in self.facts[REQUIRES][project]}

    def reports(self, person: int) -> set[int]:
        """Who reports directly to a person."""
        return {other for other in self.people if person in self.facts[REPORTS_TO][other]}


# question, what its two slots are, and whether the answer is yes
KINDS: dict[str, tuple[str, str, str, Callable[[Organisation, int, int], bool]]] = {
    "manager": (
        "Is {} above {} in the reporting line?", "people", "people", lambda g, a, b: a in g.managers(b),
    ),
    "colleagues": (
        "Do {} and {} work on a common project?", "people", "people",
        lambda g, a, b: bool(g.facts[WORKS_ON][a] & g.facts[WORKS_ON][b]),
    ),
    "access": (
        "Can {} access the {}?", "people", "resources", lambda g, a, b: b in g.facts[CAN_ACCESS][a],
    ),
    "need": (
        "Does {} work on a project that requires the {}?", "people", "resources", lambda g, a, b: b in g.needs(a),
    ),
    "team": (
        "Does someone who reports directly to {} work on {}?", "people", "projects",
        lambda g, a, b: any(b in g.facts[WORKS_ON][other] for other in g.reports(a)),
    ),
    "equipped": (
        "Can {} access some resource that {} requires?", "people", "projects",
        lambda g, a, b: bool(g.facts[CAN_ACCESS][a] & g.facts[REQUIRES][b]),
    ),
}  # fmt: skip


class KGQA(QuestionGraphs):
    """Six yes-or-no questions about each of many small knowledge graphs.

    A graph has 30 to 50 nodes: people (55 %), projects (20 %) and resources (25 %). REPORTS_TO is a tree over the
    people; WORKS_ON, REQUIRES and CAN_ACCESS have geometric degrees. Questions of every kind are redrawn until half
    of them have the answer yes.

    Args:
        split: Train, validation or test.
        form: See :class:`QuestionGraphs`; edge nodes carry the relations' names.
        sizes: Graphs per split, six questions each.
        seed: Of everything.
        transform: Applied at every access.
    """

    def __init__(
        self,
        split: Split = "train",
        form: Form = "incidence",
        *,
        sizes: Sequence[int] = (500, 30, 150),
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(draw_split(_draw, "KGQA", split, sizes, seed), form, ("yes", "no"), transform)


def _draw(rng: np.random.Generator, number: int) -> list[GraphQuestion] | None:
    graph = Organisation(rng)
    if not graph.usable:
        return None
    edges = [(u, v, name) for name, links in graph.facts.items() for u in links for v in sorted(links[u])]
    pairs, relations = tuple((u, v) for u, v, _ in edges), tuple(name for _, _, name in edges)
    questions = []
    for i, (kind, (template, first, second, holds)) in enumerate(KINDS.items()):
        wanted = (number + i) % 2 == 0
        for _ in range(TRIES):
            a, b = int(rng.choice(getattr(graph, first))), int(rng.choice(getattr(graph, second)))
            if a != b and holds(graph, a, b) == wanted:
                break
        else:
            return None
        text = template.format(graph.name(a), graph.name(b))
        answer = "yes" if wanted else "no"
        questions.append(GraphQuestion(tuple(graph.text), pairs, text, answer, (a, b), relations, kind))
    return questions

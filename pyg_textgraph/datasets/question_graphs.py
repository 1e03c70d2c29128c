"""Many small text graphs with a question each: what all generated tasks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np
import torch
from torch_geometric.data import Dataset

from pyg_textgraph.data import TextAttributedData, add_question_node
from pyg_textgraph.transforms import IncidenceGraph

Split = Literal["train", "val", "test"]
Form = Literal["standard", "incidence", "plain"]
SPLITS: tuple[Split, ...] = get_args(Split)
ATTEMPTS = 10_000


@dataclass(frozen=True)
class GraphQuestion:
    """A graph, what is asked of it, and the answer.

    Args:
        text: One text per node.
        edges: Directed edges; an undirected one is there both ways.
        question: The question.
        answer: Its answer.
        mentions: The nodes that the question is about; None: all.
        relations: One name per edge, or none.
        kind: Which of the task's question types this is.
    """

    text: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    question: str
    answer: str
    mentions: tuple[int, ...] | None = None
    relations: tuple[str, ...] = ()
    kind: str = field(default="", compare=False)

    @property
    def seen(self) -> tuple[object, ...]:
        """What a model gets to see, whatever the order of the edges: equal for questions that are the same."""
        relations = self.relations or ("",) * len(self.edges)
        return self.text, frozenset(zip(self.edges, relations, strict=True)), self.question

    def plain(self) -> TextAttributedData:
        """The graph itself, without a question node; ``text_edges`` names the relations."""
        edge_index = torch.tensor(self.edges, dtype=torch.long).view(-1, 2).T.contiguous()
        data = TextAttributedData(text=list(self.text), edge_index=edge_index)
        if self.relations:
            data.text_edges = list(self.relations)
        data.question, data.answer = self.question, self.answer
        return data

    def render(self) -> str:
        """The graph, the question and the answer, for people to read."""
        relations = self.relations or ("",) * len(self.edges)
        known = set(zip(self.edges, relations, strict=True))
        lines = ["nodes:", *(f"  {i}: {text}" for i, text in enumerate(self.text)), "edges:"]
        for (u, v), name in zip(self.edges, relations, strict=True):
            if ((v, u), name) not in known:
                lines.append(f"  {u} -{name}-> {v}")
            elif u <= v:
                lines.append(f"  {u} -{name}- {v}")
        return "\n".join([*lines, f"question: {self.question}", f"answer: {self.answer}"])


class QuestionGraphs(Dataset):
    """A data set of :class:`GraphQuestion`, one graph per question.

    - ``"standard"``: the question is one more node, the target, which points at the nodes it mentions
    - ``"incidence"``: the same on the :class:`~pyg_textgraph.transforms.IncidenceGraph`, whose edge nodes carry the
      relations' names
    - ``"plain"``: the graph alone, for models that read it as text; the question is in ``data.question``

    Every graph has ``question`` and ``answer`` as strings, and ``y``, the answer's place in :attr:`answers`, where the
    possible answers are few.

    Args:
        questions: The data.
        form: See above.
        answers: All possible answers, if they are few.
        transform: Applied at every access.

    Raises:
        ValueError: If **form** is unknown, or ``"standard"`` for graphs with relations, which it would lose.
    """

    def __init__(
        self,
        questions: Sequence[GraphQuestion],
        form: Form = "standard",
        answers: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if form not in get_args(Form):
            raise ValueError(f"{type(self).__name__}: 'form' is {form!r}, expected one of {get_args(Form)}")
        if form == "standard" and any(question.relations for question in questions):
            raise ValueError(f"{type(self).__name__}: form 'standard' loses the relations; use 'incidence'")
        super().__init__(None, transform)
        self.questions, self.form = list(questions), form
        self.answers = None if answers is None else list(answers)

    def len(self) -> int:
        return len(self.questions)

    def get(self, idx: int) -> TextAttributedData:
        asked = self.questions[idx]
        data = asked.plain()
        if self.form == "incidence":
            data = IncidenceGraph()(data)
        if self.form != "plain":
            data = add_question_node(data, asked.question, asked.mentions)
        if self.answers is not None:
            data.y = torch.tensor([self.answers.index(asked.answer)])
        return data

    def render(self, idx: int) -> str:
        """The graph at a place, its question and its answer, for people to read."""
        return self.questions[idx].render()


def draw_split(
    draw: Callable[[np.random.Generator, int], list[GraphQuestion] | None],
    name: str,
    split: Split,
    sizes: Sequence[int],
    seed: int,
    distinct: bool = True,
) -> list[GraphQuestion]:
    """One split of three that are streams of one seed.

    A graph depends on seed, name, split and its number, so fewer graphs are the first of more. But what an earlier
    split shows is drawn again: a validation or test graph may change with the sizes of the splits before it.

    Args:
        draw: Makes a graph's questions of a generator and the graph's number; None where chance gave nothing useful.
        name: Tells the streams of different tasks apart.
        split: Which one.
        sizes: Graphs for training, validation and test.
        seed: Of all three.
        distinct: Whether to redraw what an earlier split has, for families that are large enough.

    Raises:
        ValueError: If an argument is out of range, or no new graph is found.
    """
    if split not in SPLITS:
        raise ValueError(f"{name}: 'split' is {split!r}, expected one of {SPLITS}")
    if len(sizes) != len(SPLITS) or min(sizes) < 0:
        raise ValueError(f"{name}: 'sizes' is {sizes}, expected three numbers of graphs, {SPLITS}")
    if seed < 0:
        raise ValueError(f"{name}: 'seed' is {seed}, expected 0 or more")
    seen: set[object] = set()
    questions: list[GraphQuestion] = []
    for number, size in enumerate(sizes[: SPLITS.index(split) + 1]):
        questions = []
        for i in range(size):
            questions += _new(draw, [seed, crc32(name.encode()), number, i], seen, name)
        if distinct:
            seen.update(question.seen for question in questions)
    return questions


def _new(
    draw: Callable[[np.random.Generator, int], list[GraphQuestion] | None],
    key: list[int],
    seen: set[object],
    name: str,
) -> list[GraphQuestion]:
    for attempt in range(ATTEMPTS):
        questions = draw(np.random.default_rng([*key, attempt]), key[-1])
        if questions is not None and not any(question.seen in seen for question in questions):
            return questions
    raise ValueError(f"{name}: no new graph in {ATTEMPTS} attempts; there are fewer of them than 'sizes' asks for")

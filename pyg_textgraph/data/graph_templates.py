"""The words around a graph in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GraphTemplate:
    """How a graph, its nodes and the question read; empty parts are left out.

    Args:
        system: What the model is told about its role.
        intro: Before the nodes; may use ``{count}`` and ``{options}``.
        node: First line of a node's block; uses ``{name}``.
        text: Line with a node's text; uses ``{text}``.
        label: Line with a node's label; uses ``{label}``.
        unknown: Stands for a label that is not told.
        neighbors: Line with a node's neighbours; uses ``{names}``.
        question: After the nodes; may use ``{name}``, the ego's, and ``{options}``.
        answer: After the question.
        separator: Between blocks.
    """

    system: str
    intro: str
    question: str
    node: str = "Node {name}"
    text: str = ""
    label: str = "Label: {label}"
    unknown: str = "?"
    neighbors: str = "Neighbors: {names}"
    answer: str = "Answer:"
    separator: str = "\n\n"

    def opening(self, count: int, options: Sequence[str]) -> str:
        return self.intro.format(count=count, options=", ".join(options))

    def block(self, name: str, text: str, label: str | None, neighbors: Sequence[str]) -> str:
        """One node's text."""
        lines = [
            self.node.format(name=name),
            self.text.format(text=text),
            self.label.format(label=self.unknown if label is None else label),
            self.neighbors.format(names=", ".join(neighbors) or "none"),
        ]
        return "\n".join(line for line in lines if line)

    def question_about(self, name: str, options: Sequence[str]) -> str:
        question = self.question.format(name=name, options=", ".join(options))
        return f"{question} {self.answer}" if self.answer else question


NEIGHBOR_LABELS = GraphTemplate(
    system="You are given a graph as a list of nodes with their labels and neighbors. Answer the question about it.",
    intro="The graph has {count} nodes.",
    question="Question: What is the most common label among the neighbors of node {name}?",
)
"""The semi-synthetic task: the most common label among the ego's immediate neighbours (arXiv 2606.15633)."""

NODE_CLASS = GraphTemplate(
    system="You are given a graph of texts as a list of nodes with their neighbors. Answer the question about it.",
    intro="The graph has {count} nodes.",
    text="Text: {text}",
    question="Question: Which of the labels {options} does node {name} have?",
)
"""The real-text task: the class of the ego from texts, and from the labels of other nodes where they are told."""

"""Questions about nodes of a big graph: prompts in any order, and which answers are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from transformers import PreTrainedTokenizerBase

from pyg_textgraph.data import NEIGHBOR_LABELS, NODE_CLASS, GraphPrompt, graph_text, linearize
from pyg_textgraph.data.linearization import Order
from pyg_textgraph.nn.gala import option_ids
from pyg_textgraph.sampling import CSRGraph, sample_fanout

Task = Literal["semi-synthetic", "real text"]
STEPS = "Think step by step about its neighbors, then end with 'Answer:' and the label."


@dataclass(frozen=True)
class Question:
    """An ego graph with what may be told of it; the ego is node 0."""

    graph: Data
    names: list[str]
    labels: dict[int, str]
    right: frozenset[int]


class Questions:
    """Makes questions of one task about one graph, always the same ones for the same node.

    Semi-synthetic: the most common label among the ego's immediate neighbours in the prompt, whose labels are told; any
    of several most common ones is right. Real text: the ego's class, with texts, and labels of training nodes.
    """

    def __init__(
        self, task: Task, data: Data, tokenizer: PreTrainedTokenizerBase, fanouts: Sequence[int], max_tokens: int
    ) -> None:
        self.task, self.data, self.tokenizer = task, data, tokenizer
        self.fanouts, self.max_tokens = fanouts, max_tokens
        self.options: list[str] = list(data.class_names)
        self.csr = CSRGraph.from_edge_index(data.edge_index.numpy(), int(data.num_nodes or 0))
        self.template = NEIGHBOR_LABELS if task == "semi-synthetic" else NODE_CLASS
        self.max_words = None if task == "semi-synthetic" else 50
        self.answers = option_ids(tokenizer, self.options, "" if tokenizer.chat_template else " ")

    def draw(self, *sizes: int) -> list[list[Question]]:
        """Disjoint sets of questions about random nodes whose prompts fit and whose egos have a neighbour."""
        candidates = torch.ones(self.csr.num_nodes, dtype=torch.bool)
        if self.task == "real text":
            candidates = ~self.data.train_mask
        nodes = candidates.nonzero().view(-1)
        nodes = nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))]
        found: list[Question] = []
        for node in nodes.tolist():
            if len(found) == sum(sizes):
                break
            question = self.about(node, self.fanouts)
            if question.right and len(self.prompt(question, "bfs")) <= self.max_tokens:
                found.append(question)
        ends = np.cumsum([0, *sizes])
        return [found[start:end] for start, end in pairwise(ends)]

    def about(self, node: int, fanouts: Sequence[int]) -> Question:
        nodes, edges = sample_fanout(self.csr, node, fanouts)
        n = len(nodes)
        graph = Data(edge_index=torch.from_numpy(edges), num_nodes=n)
        if "text" in self.data:
            graph.text = [self.data.text[v] for v in nodes.tolist()]
        y = self.data.y[torch.from_numpy(nodes)].tolist()
        told = [v for v in range(1, n) if self.task == "semi-synthetic" or bool(self.data.train_mask[nodes[v]])]
        near = Counter(y[v] for v in edges[:, (edges == 0).any(0)].ravel().tolist() if v != 0)
        right = {c for c, k in near.items() if k == max(near.values())} if self.task == "semi-synthetic" else {y[0]}
        # names must not give away how near a node is
        names = np.random.default_rng(node).permutation(n)
        return Question(
            graph, [str(v) for v in names], {v: self.options[y[v]] for v in told}, frozenset(right if near else ())
        )

    def prompt(
        self, question: Question, order: Order, *, steps: bool = False, shown: Sequence[Question] = ()
    ) -> GraphPrompt:
        """The prompt; with ``steps`` it asks for a chain of thought, ``shown`` are demonstrations."""
        template = self.template
        if steps:
            template = replace(template, question=f"{template.question} {STEPS}", answer="")
        demonstrations = [
            (graph_text(q.graph, self.template, order=order, **self._words(q))[0], self.options[min(q.right)])
            for q in shown
        ]
        return linearize(
            question.graph,
            self.tokenizer,
            template,
            demonstrations=demonstrations,
            order=order,
            **self._words(question),
        )

    def _words(self, question: Question) -> dict[str, Any]:
        return {
            "labels": question.labels, "names": question.names, "options": self.options, "max_words": self.max_words,
        }  # fmt: skip

    def answer(self, question: Question) -> Tensor:
        """Tokens of a right answer."""
        return self.answers[min(question.right)]

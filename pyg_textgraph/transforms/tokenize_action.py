from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TextAttributedData, add_question_node, append_to_target, tokenize
from pyg_textgraph.data.action_tokens import ActionTokens
from pyg_textgraph.data.graph_actions import checked_graph
from pyg_textgraph.transforms.incidence_graph import IncidenceGraph


@functional_transform("tokenize_action")
class TokenizeAction(BaseTransform):
    r"""A graph as a language model reads it to write the next action (functional name: :obj:`tokenize_action`).

    One more node, the target, holds the instruction and points at the nodes it is about: ``data.mentions``, or all.
    Its text reads ``{instruction}\n A:`` and is continued by the action, ``data.action``, which is supervised where it
    is there. What was written before is in the graph itself, so a training example and what
    :class:`~pyg_textgraph.nn.GraphWriter` reads at the same step are the same graph. Edges with names become nodes
    (:class:`~pyg_textgraph.transforms.IncidenceGraph`).

    Args:
        actions: Tokens of actions.
        instruction: What is to be done, unless ``data.instruction`` tells it.
        transform: Structural features, computed last and therefore anew after every action.
        suffix: Between instruction and action.
        empty: What stands for an empty text; ``"error"`` refuses it.

    Shapes:
        - **data.input_ids**, **data.labels** (T,), **data.num_tokens** (N,)

    Raises:
        ValueError: If the grammar does not allow the action, or the graph has what written nodes would lack.
    """

    def __init__(
        self,
        actions: ActionTokens,
        instruction: str = "Complete the graph.",
        transform: Callable[[Any], Any] | None = None,
        suffix: str = "\n A:",
        empty: str = "error",
    ) -> None:
        self.actions, self.instruction, self.transform, self.suffix = actions, instruction, transform, suffix
        self.empty = empty
        self.suffix_ids = torch.tensor(actions.tokenizer(suffix, add_special_tokens=False)["input_ids"]).long()

    def forward(self, data: Data) -> TextAttributedData:
        state = checked_graph(data)
        graph = self.actions.readable(state)
        instruction, mentions = graph.get("instruction") or self.instruction, graph.get("mentions")
        for key in ("action", "actions", "instruction", "mentions"):
            if key in graph:
                del graph[key]
        if self.actions.grammar.relations:
            graph = IncidenceGraph()(graph)
        out = add_question_node(graph, instruction, mentions)
        out.question = instruction
        out = append_to_target(tokenize(out, self.actions.tokenizer, empty=self.empty), self.suffix_ids)
        action = state.get("action")
        if action is not None:
            ids = self.actions.encode(action, state)
            out = append_to_target(out, ids, num_supervised=ids.numel())
        return out if self.transform is None else self.transform(out)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.instruction!r}, transform={self.transform})"

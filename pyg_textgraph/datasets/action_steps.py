"""Written graphs as training examples: one per action."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch_geometric.data import Data, Dataset

from pyg_textgraph.data.graph_actions import GraphGrammar, action_steps
from pyg_textgraph.data.text_attributed_data import TextAttributedData


class ActionSteps(Dataset):
    """Teacher forcing over the graphs that a writer sees on its way.

    Every action of every graph is one example: the graph as it is before the action, and the action; the stop is the
    last one of each graph. With :class:`~pyg_textgraph.transforms.TokenizeAction` as **transform** these are the inputs
    that :class:`~pyg_textgraph.nn.GraphWriter` reads at the same steps, structural features included.

    Args:
        graphs: Graphs with ``actions`` (:class:`~pyg_textgraph.transforms.HideEdges`,
            :class:`~pyg_textgraph.transforms.HideNode`).
        grammar: Allows the actions.
        transform: Applied at every access.

    Raises:
        ValueError: If a graph has no ``actions``, or one is not allowed.
    """

    def __init__(
        self, graphs: Iterable[Data], grammar: GraphGrammar, transform: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(None, transform)
        self.steps = [step for graph in graphs for step in action_steps(graph, grammar)]

    def len(self) -> int:
        return len(self.steps)

    def get(self, idx: int) -> TextAttributedData:
        return self.steps[idx]

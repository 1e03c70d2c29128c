"""From sampled egos to text graphs with tokens, question and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from pyg_textgraph.data import TaskPrompt, TextAttributedData, TokenStore, node_texts
from pyg_textgraph.data.text_attributed_data import PAIR_KEYS, TOKEN_KEYS, take_rows, with_edge_index
from pyg_textgraph.sampling.csr import Ints, runs
from pyg_textgraph.sampling.ego import Egos

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def ego_graph(data: TextAttributedData, node: Ints, edge_index: Ints, edge: Ints) -> TextAttributedData:
    """One ego cut out of a graph: its target is node 0, its original ids are ``n_id`` and ``e_id``.

    Whatever belongs to nodes or edges is filtered, tokens included; pair features are dropped, as they need the whole
    graph; the rest stays.

    Shapes:
        - **node** (n,), **edge** (m,) original ids; **edge_index** (2, m) places in **node**
    """
    device = data.edge_index.device
    nodes, edges, index = (torch.from_numpy(x).to(device) for x in (node, edge, edge_index))
    out = TextAttributedData(edge_index=index, num_nodes=nodes.numel(), target=0, n_id=nodes, e_id=edges)
    tokens = None
    if "num_tokens" in data:
        tokens = torch.from_numpy(runs(data.token_ptr.cpu().numpy(), node)[0]).to(device)
    for key, value in data:
        if key in ("edge_index", "num_nodes", "target", *PAIR_KEYS):
            continue
        if key in TOKEN_KEYS:
            out[key] = value[tokens]
        elif data.is_edge_attr(key):
            out[key] = take_rows(value, edges, data.__cat_dim__(key, value))
        elif data.is_node_attr(key):
            out[key] = take_rows(value, nodes, data.__cat_dim__(key, value))
        else:
            out[key] = value
    return out


class ToTextGraphs:
    r"""Turns sampled egos of one big graph into tokenized text graphs.

    As ``transform=`` of a :class:`~torch_geometric.loader.NodeLoader` with an
    :class:`~pyg_textgraph.transforms.EgoTextSampler` it makes a batch of text graphs of the mini-batch, one per seed.
    All texts are tokenized here, once.

    Args:
        data: The big graph, with ``text`` (unless **store** is given) and, for answers, ``y``.
        tokenizer: Any Hugging Face tokenizer.
        store: The tokens of all texts, if they are there already.
        question: What is asked of the target; without it, nothing is appended and nothing supervised.
        class_names: The answer for each class, ``data.class_names`` by default; without them, nothing is supervised.
        max_target_tokens: Cuts the target's text.
        max_neighbor_tokens: Cuts the other nodes' texts.
        empty: What stands for an empty text; ``"error"`` refuses it.
        transform: Applied to every text graph.

    Raises:
        ValueError: If neither **tokenizer** nor **store** is given, a question comes without a tokenizer, class names
            without a question or without labels, the store does not fit the graph, or ``y`` has no name for a class.
    """

    def __init__(
        self,
        data: Data,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        store: TokenStore | None = None,
        question: str | None = None,
        class_names: Sequence[str] | None = None,
        max_target_tokens: int | None = None,
        max_neighbor_tokens: int | None = None,
        empty: str = "error",
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if tokenizer is None and (store is None or question is not None):
            raise ValueError("ToTextGraphs: 'tokenizer' is missing; texts and questions need one")
        if question is None and class_names is not None:
            raise ValueError("ToTextGraphs: 'class_names' are answers, but there is no 'question'")
        if store is None:
            store = TokenStore.from_texts(node_texts(data), tokenizer, empty)
        if len(store) != data.num_nodes:
            raise ValueError(f"ToTextGraphs: 'store' holds {len(store)} texts but the graph has {data.num_nodes} nodes")
        if question is not None and class_names is None:
            class_names = data.class_names if "class_names" in data and "y" in data else ()
        self.store = store
        self.prompt = None if question is None else TaskPrompt(tokenizer, question, class_names or ())
        self.max_target_tokens, self.max_neighbor_tokens = max_target_tokens, max_neighbor_tokens
        self.transform = transform
        self._data = with_edge_index(data)
        self._y: Tensor | None = self._data.get("y")
        for key in ("text", "text_nodes", *TOKEN_KEYS, "num_tokens", "class_names", "y"):
            if key in self._data:
                del self._data[key]
        if self.class_names:
            self._check_labels()

    @property
    def class_names(self) -> list[str]:
        """The answers, in the order of the labels."""
        return [] if self.prompt is None else self.prompt.answers

    def graphs(self, egos: Egos) -> list[TextAttributedData]:
        """One text graph per ego, with ``input_ids``, ``num_tokens``, ``labels``, ``target`` and the target's ``y``.

        A negative label means unknown: such a target gets the question without an answer.
        """
        return [self._graph(*ego) for ego in egos.split()]

    def __call__(self, mini_batch: Data) -> Batch:
        """The text graphs of a NodeLoader's mini-batch, in the order of its seeds."""
        for key in ("n_id", "e_id", "batch"):
            if mini_batch.get(key) is None:
                raise ValueError(f"ToTextGraphs: the mini-batch has no '{key}'; is its sampler an EgoTextSampler?")
        node, ego, edge, index = (mini_batch[key].cpu().numpy() for key in ("n_id", "batch", "e_id", "edge_index"))
        order = np.argsort(ego, kind="stable")
        place = np.argsort(order)  # of every node of the mini-batch, once egos stand one after the other
        by_ego = np.argsort(ego[index[0]], kind="stable")
        row, col = place[index[:, by_ego]]
        out = Batch.from_data_list(self.graphs(Egos(node[order], ego[order], row, col, edge[by_ego])))
        out.input_id = mini_batch.input_id
        return out

    def _graph(self, node: Ints, edge_index: Ints, edge: Ints) -> TextAttributedData:
        out = ego_graph(self._data, node, edge_index, edge)
        out.input_ids, out.num_tokens = self.store.gather(
            out.n_id, out.target, max_tokens=self.max_neighbor_tokens, max_target_tokens=self.max_target_tokens
        )
        answer = None
        if self._y is not None:
            label = self._y[int(node[0])]
            out.y = label.view(1) if label.numel() == 1 else label[None]
            if self.class_names and float(out.y) >= 0:
                answer = int(out.y)
        if self.prompt is not None:
            out = self.prompt.append(out, answer)
        return out if self.transform is None else self.transform(out)

    def _check_labels(self) -> None:
        y, names = self._y, len(self.class_names)
        if y is None:
            raise ValueError("ToTextGraphs: 'class_names' are answers, but the graph has no labels 'y'")
        if y.numel() != len(self.store):
            raise ValueError(f"ToTextGraphs: 'y' is of shape {tuple(y.shape)}, expected one class per node")
        if y.numel() and bool(y.max() >= names):
            raise ValueError(f"ToTextGraphs: 'y' holds class {int(y.max())} but there are {names} 'class_names'")

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.store}, {self.prompt})"

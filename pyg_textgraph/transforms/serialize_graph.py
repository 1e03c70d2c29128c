from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import select

from pyg_textgraph.data import TextAttributedData, node_texts
from pyg_textgraph.data.checks import check_one_graph
from pyg_textgraph.data.text_attributed_data import PAIR_KEYS, TEXT_KEYS, TOKEN_KEYS, with_edge_index

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DROPPED = (*PAIR_KEYS, *TEXT_KEYS, *TOKEN_KEYS, "edge_index", "e_id", "num_tokens", "num_nodes",
           "relation_mask", "target")  # fmt: skip
CUT_OFF = "?"
Line = tuple[str, int | None, str]  # what is before a relation node's text, that node, and what is after it


@functional_transform("serialize_graph")
class SerializeGraph(BaseTransform):
    r"""Writes a whole text graph as the text of one node (functional name: :obj:`serialize_graph`).

    ::

        Nodes:
        0: run, move fast on foot
        1: sprint, run very fast
        Edges:
        (1, hypernym, 0)

        2: {the target's text}

    A GTLM gives a graph of one node the logits of its language model, so this is the language model that reads a
    serialized graph: same model, same training, ``biases=()``.

    - Nodes are called by their place. One edge is one line, ``(source, relation, target)`` or, where it has no text,
      ``(source, target)``; equal lines are written once.
    - The nodes that :class:`~pyg_textgraph.transforms.IncidenceGraph` made of edges (``data.relation_mask``) become
      lines again. An end that sampling cut off reads ``?``; a relation both ways that lost an end is, in that graph, a
      self-loop, and reads as one.
    - The target's text, with question and answer if they are there, comes last. If the graph has a ``question``, the
      target is a question node (:func:`~pyg_textgraph.data.add_question_node`), which has no name and no lines; without
      a target, ``data.question`` itself comes last.
    - A tokenized graph stays tokenized: its nodes' tokens, as they were cut, and its supervision are kept. Nothing is
      cut here.

    Attributes of the graph (``y``, ``answer``, …) stay, those of nodes become the target's, those of edges go.

    Args:
        tokenizer: For the words around the texts of tokenized graphs; without it, graphs must not be tokenized yet.
        merge_reciprocal: Whether an edge whose reverse has the same text and has been written is left out: an
            undirected edge is one line.

    Shapes:
        - **data.text** one string; or **data.input_ids**, **data.labels** (T,) and **data.num_tokens** (1,)
        - **data.target** 0, **data.edge_index** (2, 0)

    Raises:
        TypeError: If it does not get one homogeneous graph.
        ValueError: If the graph has no texts, neither target nor question, or is tokenized and there is no tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None = None, merge_reciprocal: bool = False) -> None:
        self.tokenizer, self.merge_reciprocal = tokenizer, merge_reciprocal

    def forward(self, data: Data) -> TextAttributedData:
        check_one_graph(data, "SerializeGraph")
        source = with_edge_index(data)
        question, target = source.get("question"), source.get("target")
        if question is None and target is None:
            raise ValueError("SerializeGraph: the graph has neither 'target' nor 'question', expected one of them")
        target = None if target is None else int(target)
        parts = list(_parts(source, target, question, self.merge_reciprocal))
        out = _one_node(source, target)
        if "input_ids" not in source:
            texts = node_texts(source)
            out.text = ["".join(part if isinstance(part, str) else texts[part] for part in parts)]
            return out
        if self.tokenizer is None:
            raise ValueError("SerializeGraph: the graph is tokenized, but there is no 'tokenizer'")
        labels = source.labels if "labels" in source else torch.full_like(source.input_ids, -100)
        ptr = source.token_ptr.tolist()
        ids: list[Tensor] = []
        kept: list[Tensor] = []
        for part in _joined(parts):
            if isinstance(part, str):
                ids.append(source.input_ids.new_tensor(self.tokenizer(part, add_special_tokens=False)["input_ids"]))
                kept.append(torch.full_like(ids[-1], -100))
            else:
                ids.append(source.input_ids[ptr[part] : ptr[part + 1]])
                kept.append(labels[ptr[part] : ptr[part + 1]])
        out.input_ids, out.labels = torch.cat(ids), torch.cat(kept)
        out.num_tokens = torch.tensor([out.input_ids.numel()])
        return out

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(merge_reciprocal={self.merge_reciprocal})"


def _parts(
    data: TextAttributedData, target: int | None, question: str | None, merge_reciprocal: bool
) -> Iterator[str | int]:
    """Strings, and nodes whose text stands there."""
    n = int(data.num_nodes or 0)
    relation = data.relation_mask if "relation_mask" in data else torch.zeros(n, dtype=torch.bool)
    if relation.shape != (n,):
        raise ValueError(f"SerializeGraph: 'relation_mask' is of shape {tuple(relation.shape)}, expected ({n},)")
    is_relation = relation.tolist()
    if target is not None and is_relation[target]:
        raise ValueError(f"SerializeGraph: the target, node {target}, is a relation, expected a node of the graph")
    asked = target if question is not None else None
    names = {v: str(v) for v in range(n) if not is_relation[v] and v != asked}
    yield "Nodes:\n"
    for node, name in names.items():
        if node != target:
            yield from (f"{name}: ", node, "\n")
    lines = _edge_lines(data, names, is_relation, asked, merge_reciprocal)
    if lines:
        yield "Edges:\n"
    for before, node_of_line, after in lines:
        yield before
        if node_of_line is not None:
            yield node_of_line
        yield f"{after}\n"
    yield "\n"
    if target is None:
        yield str(question)
    elif asked is None:
        yield from (f"{names[target]}: ", target)
    else:
        yield target


def _edge_lines(
    data: TextAttributedData,
    names: dict[int, str],
    is_relation: list[bool],
    asked: int | None,
    merge_reciprocal: bool,
) -> list[Line]:
    edges: list[list[int]] = data.edge_index.T.tolist() if data.edge_index is not None else []
    key = next((key for key in ("edge_text", "text_edges") if data.get(key) is not None), None)
    texts: list[str | None] = [None] * len(edges) if key is None else list(data[key])
    into: dict[int, list[int]] = {node: [] for node, yes in enumerate(is_relation) if yes}
    out_of: dict[int, list[int]] = {node: [] for node in into}
    lines: dict[tuple[str, Any, str], Line] = {}
    for (u, v), text in zip(edges, texts, strict=True):
        if asked in (u, v):
            continue
        if is_relation[u]:
            out_of[u].append(v)
        elif is_relation[v]:
            into[v].append(u)
        elif not merge_reciprocal or (names[v], text or "", names[u]) not in lines:
            middle = f"{text}, " if text else ""
            lines[names[u], text or "", names[v]] = (f"({names[u]}, {middle}{names[v]})", None, "")
    words = _words(data) if into else []
    for node in into:
        for source, sink in _ends(into[node], out_of[node]):
            if not merge_reciprocal or (str(sink), words[node], str(source)) not in lines:
                lines.setdefault((str(source), words[node], str(sink)), (f"({source}, ", node, f", {sink})"))
    return list(lines.values())


def _words(data: TextAttributedData) -> list[Any]:
    """What each node says: its text, or its tokens."""
    if "input_ids" not in data:
        return node_texts(data)
    return [tuple(ids.tolist()) for ids in data.input_ids.split(data.num_tokens.tolist())]


def _ends(sources: list[int], sinks: list[int]) -> list[tuple[int | str, int | str]]:
    """From where to where a relation node leads: both ways where both ends are on both sides."""
    pairs: list[tuple[int | str, int | str]] = [(u, v) for u in sources for v in sinks if u != v]
    if not pairs and sources and sinks:
        return [(u, u) for u in sources]
    return pairs or [*((u, CUT_OFF) for u in sources), *((CUT_OFF, v) for v in sinks)]


def _joined(parts: list[str | int]) -> list[str | int]:
    """Neighbouring strings as one, so that words are tokenized together."""
    out: list[str | int] = []
    for part in parts:
        if out and isinstance(part, str) and isinstance(last := out[-1], str):
            out[-1] = last + part
        else:
            out.append(part)
    return out


def _one_node(data: TextAttributedData, target: int | None) -> TextAttributedData:
    out = TextAttributedData(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=1, target=0)
    for key, value in data:
        if key in DROPPED or data.is_edge_attr(key):
            continue
        if key != "y" and data.is_node_attr(key):
            if target is not None:
                out[key] = select(value, torch.tensor([target]), data.__cat_dim__(key, value))
        elif key == "y" and isinstance(value, Tensor) and value.numel() == data.num_nodes and target is not None:
            out.y = value.view(-1)[[target]]
        else:
            out[key] = value
    return out

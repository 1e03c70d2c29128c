"""Graphs as prompts: one block of text per node, in some order, and which token belongs to which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, reverse_cuthill_mckee
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data.checks import checked_edges
from pyg_textgraph.data.graph_templates import GraphTemplate
from pyg_textgraph.data.tokenization import check_unicode, node_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Order = Literal["random", "bfs", "rcm"]


@dataclass(frozen=True)
class GraphPrompt:
    """A graph written as text, as a language model reads it.

    Args:
        text: The whole prompt, special tokens included.
        input_ids: Its tokens.
        node: The node whose block a token lies in; −1 for a token outside all blocks or across a border.
        block: Where each node's block starts and ends in **text**, in characters.
        edge_index: The edges of the prompted graph.
        ego: The node that is asked about; its block is the last one.
        lead: What stands between the prompt and an answer: nothing in a chat, a space in plain text.

    Shapes:
        - **input_ids**, **node** (T,); **block** (N, 2); **edge_index** (2, E)
    """

    text: str
    input_ids: Tensor
    node: Tensor
    block: Tensor
    edge_index: Tensor
    ego: int
    lead: str = ""

    @property
    def num_nodes(self) -> int:
        return self.block.size(0)

    def __len__(self) -> int:
        return self.input_ids.numel()


def linearize(
    data: Data,
    tokenizer: PreTrainedTokenizerBase,
    template: GraphTemplate,
    *,
    demonstrations: Sequence[tuple[str, str]] = (),
    **kwargs: Any,
) -> GraphPrompt:
    """Writes a graph as a prompt.

    System message, earlier turns and the graph with its question go through the tokenizer's chat template; without one
    they are plain text.

    Args:
        data: A (small) graph.
        tokenizer: A fast tokenizer, which knows where in the text its tokens come from.
        template: The words around the graph.
        demonstrations: Other graphs' texts (:func:`graph_text`) with the right answers, put before this one.
        **kwargs: Further arguments of :func:`graph_text`.

    Raises:
        ValueError: If the tokenizer cannot tell offsets, or as :func:`graph_text`.
    """
    user, block = graph_text(data, template, **kwargs)
    text, start, lead = _as_chat(tokenizer, template, user, demonstrations)
    block += start
    input_ids, node = _tokens(text, block, tokenizer)
    return GraphPrompt(text, input_ids, node, block, data.edge_index.cpu(), int(block[:, 0].argmax()), lead)


def graph_text(
    data: Data,
    template: GraphTemplate,
    *,
    ego: int | None = None,
    order: Order | Sequence[int] = "bfs",
    labels: Mapping[int, str] | Sequence[str | None] | None = None,
    options: Sequence[str] = (),
    names: Sequence[str] | None = None,
    max_words: int | None = None,
    max_neighbors: int | None = None,
    seed: int = 0,
) -> tuple[str, Tensor]:
    """A graph and a question about it as text, and where each node's block starts and ends in it.

    A node's block is its header, text, label and list of neighbours, as far as the template has them; the ego's block
    comes last, just before the question.

    Args:
        data: A (small) graph, with ``text`` if the template shows texts. Edge directions are ignored.
        template: The words around the graph.
        ego: The node that is asked about; ``data.target`` or else node 0 by default.
        order: Of the blocks: see :func:`node_order`, or all nodes listed.
        labels: Label per node, where it is known and may be told.
        options: The possible answers, for templates that list them.
        names: What nodes are called in the prompt, their numbers by default.
        max_words: Cuts the text of every node.
        max_neighbors: Cuts the list of neighbours of every node.
        seed: Of ``order="random"``.

    Shapes:
        - **returns** the text, and blocks (N, 2) in characters

    Raises:
        ValueError: If the ego is out of range, or **order** or **names** do not fit the graph.
    """
    n = int(data.num_nodes or 0)
    if not isinstance(data.edge_index, Tensor):
        raise ValueError("linearize: the graph has no 'edge_index'")
    for name, limit in (("max_words", max_words), ("max_neighbors", max_neighbors)):
        if limit is not None and limit < 0:
            raise ValueError(f"linearize: '{name}' is {limit}, expected 0 or more")
    ego = int(data.get("target", 0)) if ego is None else ego
    if not 0 <= ego < n:
        raise ValueError(f"linearize: 'ego' is {ego} but the graph has {n} nodes")
    names = [str(v) for v in range(n)] if names is None else names
    if len(names) != n or len(set(names)) != n:
        raise ValueError(f"linearize: 'names' holds {len(set(names))} different names, expected {n}")
    sequence = node_order(data.edge_index, n, order, ego, seed) if isinstance(order, str) else [int(v) for v in order]
    if sorted(sequence) != list(range(n)) or sequence[-1] != ego:
        raise ValueError(f"linearize: 'order' must list all {n} nodes once, node {ego} (the ego) last")
    texts = node_texts(data) if template.text else [""] * n
    wrong = next((v for v in range(n) if not isinstance(texts[v], str)), None)
    if wrong is not None:
        raise TypeError(f"linearize: text {wrong} is {type(texts[wrong]).__name__}, expected str")
    if max_words is not None:
        texts = [" ".join(text.split()[:max_words]) for text in texts]
    known = dict(enumerate(labels)) if isinstance(labels, Sequence) else dict(labels or {})
    adjacency = _adjacency(data.edge_index, n)
    out = template.opening(n, options)
    block = torch.empty(n, 2, dtype=torch.long)
    for v in sequence:
        around = adjacency.indices[adjacency.indptr[v] : adjacency.indptr[v + 1]][:max_neighbors]
        out += template.separator if out else ""
        start = len(out)
        out += template.block(names[v], texts[v], known.get(v), [names[u] for u in around])
        block[v] = torch.tensor([start, len(out)])
    return out + template.separator + template.question_about(names[ego], options), block


def node_order(edge_index: Tensor, num_nodes: int, order: Order, ego: int, seed: int = 0) -> list[int]:
    """The order of the blocks, ego last.

    ``"random"``; ``"bfs"``: breadth-first search from the ego, reversed, so that its neighbours stand next to it (nodes
    without a path to the ego first); ``"rcm"``: reverse Cuthill–McKee, from the end that is
    farther from the ego, which is then moved to the end.

    Raises:
        ValueError: If there is no such order.
    """
    if order not in get_args(Order):
        raise ValueError(f"linearize: 'order' is {order!r}, expected one of {get_args(Order)} or a list of nodes")
    if order == "random":
        sequence: NDArray[Any] = np.random.default_rng(seed).permutation(num_nodes)
    elif order == "rcm":
        sequence = reverse_cuthill_mckee(_adjacency(edge_index, num_nodes), symmetric_mode=True)
        if 2 * int(np.flatnonzero(sequence == ego)[0]) < num_nodes - 1:
            sequence = sequence[::-1]  # as narrow
    else:
        found = breadth_first_order(_adjacency(edge_index, num_nodes), ego, return_predecessors=False)
        sequence = np.concatenate([np.setdiff1d(np.arange(num_nodes), found), found[::-1]])
    return [*(int(v) for v in sequence if v != ego), ego]


def _adjacency(edge_index: Tensor, num_nodes: int) -> csr_array[np.float64, tuple[int, int]]:
    """Undirected, without self-loops, neighbours ascending."""
    source, target = checked_edges(edge_index, num_nodes, "linearize")
    keep = source != target
    ends = np.concatenate([source[keep], target[keep]]), np.concatenate([target[keep], source[keep]])
    matrix = csr_array((np.ones(len(ends[0])), ends), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    return matrix


def _as_chat(
    tokenizer: PreTrainedTokenizerBase, template: GraphTemplate, user: str, demonstrations: Sequence[tuple[str, str]]
) -> tuple[str, int, str]:
    """The whole text, where the user's message starts in it, and the lead of an answer."""
    if tokenizer.chat_template is None:
        shown = [f"{question} {answer}" for question, answer in demonstrations]
        before = "".join(f"{part}{template.separator}" for part in (template.system, *shown) if part)
        return before + user, len(before), " "
    turns = [
        {"role": role, "content": content}
        for pair in demonstrations
        for role, content in zip(("user", "assistant"), pair, strict=True)
    ]
    turns.append({"role": "user", "content": user})
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
    try:
        text = tokenizer.apply_chat_template([{"role": "system", "content": template.system}, *turns], **options)
    except Exception as error:  # jinja2's TemplateError: some models' chats have no system message
        if type(error).__name__ not in ("TemplateError", "UndefinedError"):
            raise
        turns[0] = {"role": "user", "content": f"{template.system}{template.separator}{turns[0]['content']}"}
        text = tokenizer.apply_chat_template(turns, **options)
    start = text.rfind(user)
    if start < 0:
        raise ValueError("linearize: the tokenizer's chat template changes the message it is given")
    return text, start, ""


def _tokens(text: str, block: Tensor, tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """Token ids and the node of each, both (T,)."""
    if not tokenizer.is_fast:
        raise ValueError(f"linearize: {type(tokenizer).__name__} has no offsets; load the fast version of it")
    check_unicode(text, "linearize: the prompt")
    # a chat template writes the special tokens itself
    out = tokenizer(text, add_special_tokens=tokenizer.chat_template is None, return_offsets_mapping=True)
    offset = torch.tensor(out["offset_mapping"], dtype=torch.long).view(-1, 2)  # [T, 2]
    start, end = offset.T
    # some tokenizers leave white space out of offsets: a token reaches back to where the one before it ended
    before = torch.cat([end.new_zeros(1), end.cummax(0).values[:-1]]) if end.numel() else end
    reach = torch.minimum(start, before)
    for t in (torch.isin(start, block[:, 0]) & (reach < start)).nonzero().view(-1).tolist():
        if not tokenizer.decode(out["input_ids"][t])[:1].isspace():
            reach[t] = start[t]  # white space that belongs to no token
    start = reach
    order = block[:, 0].argsort()
    place = torch.searchsorted(block[order, 0], start, right=True) - 1
    node = order[place.clamp(min=0)]
    inside = (place >= 0) & (end <= block[node, 1]) & (end > start)
    return torch.tensor(out["input_ids"], dtype=torch.long), torch.where(inside, node, -1)

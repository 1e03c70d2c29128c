"""Questions and answers: what is asked of a text graph, and what is supervised."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import N_KEYS

from pyg_textgraph.data.text_attributed_data import (
    EDGE_TEXT_KEYS,
    PAIR_KEYS,
    TextAttributedData,
    rows_for_more_nodes,
    with_edge_index,
)
from pyg_textgraph.data.tokenization import node_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def answer_ids(tokenizer: PreTrainedTokenizerBase, answer: str) -> Tensor:
    """Tokens of an answer, a space before it and the end token after it, (L,).

    Raises:
        ValueError: If the answer is empty or the tokenizer has no end token.
    """
    ids = tokenizer(" " + answer.strip(), add_special_tokens=False)["input_ids"] if answer.strip() else []
    if not ids:
        raise ValueError(f"answer {answer!r} has no tokens")
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer has no 'eos_token', which ends an answer; set tokenizer.eos_token")
    return torch.tensor([*ids, tokenizer.eos_token_id])


class TaskPrompt:
    r"""A question at the end of the target's text, and its answer.

    The target reads ``{text}\n\n{question}\n A:`` and its answer is supervised, end token included (GTLM, arXiv
    2605.10247). Question and answers are tokenized once, apart from the text: an answer's tokens are the same in
    training, in :meth:`GTLM.classify <pyg_textgraph.nn.GTLM.classify>` and in generation.

    Args:
        tokenizer: Any Hugging Face tokenizer with an end token.
        question: What is asked of the target.
        answers: All possible answers, e.g. the class names.
        template: Has ``{question}`` in it.

    Raises:
        ValueError: If an answer is empty or two have the same tokens.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        question: str,
        answers: Sequence[str] = (),
        template: str = "\n\n{question}\n A:",
    ) -> None:
        self.question, self.answers = question, list(answers)
        text = template.format(question=question)
        self.question_ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.long)
        self.answer_ids = [answer_ids(tokenizer, answer) for answer in answers]
        seen: dict[tuple[int, ...], str] = {}
        for answer, ids in zip(answers, map(tuple, map(Tensor.tolist, self.answer_ids)), strict=True):
            if ids in seen:
                raise ValueError(f"TaskPrompt: 'answers' holds {seen[ids]!r} and {answer!r}, whose tokens are the same")
            seen[ids] = answer

    def append(self, data: TextAttributedData, answer: int | None = None) -> TextAttributedData:
        """A copy of a tokenized graph whose target is asked the question.

        Args:
            data: Has ``input_ids``, ``num_tokens`` and ``target``.
            answer: Index of the right answer, which is appended and supervised; none by default.

        Raises:
            ValueError: If there is no such answer.
        """
        if answer is not None and not 0 <= answer < len(self.answers):
            raise ValueError(f"TaskPrompt: 'answer' is {answer}, expected an index of {len(self.answers)} answers")
        extra = self.question_ids if answer is None else torch.cat([self.question_ids, self.answer_ids[answer]])
        supervised = 0 if answer is None else self.answer_ids[answer].numel()
        return append_to_target(data, extra, supervised)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.question!r}, {len(self.answers)} answers)"


def append_to_target(data: TextAttributedData, ids: Tensor, num_supervised: int = 0) -> TextAttributedData:
    """A copy of a tokenized graph with tokens added at the end of the target's.

    Args:
        data: Has ``input_ids``, ``num_tokens`` and ``target``.
        ids: The tokens to add, (L,).
        num_supervised: How many of the last ones are supervised.

    Raises:
        ValueError: If the graph is not tokenized or has no target.
    """
    for key in ("input_ids", "num_tokens", "target"):
        if key not in data:
            raise ValueError(f"append_to_target: the graph has no '{key}'")
    out = copy.copy(data)
    target = int(data.target)
    end = int(data.num_tokens[: target + 1].sum())
    labels = data.labels if "labels" in data else torch.full_like(data.input_ids, -100)
    extra = torch.full_like(ids, -100)
    extra[ids.numel() - num_supervised :] = ids[ids.numel() - num_supervised :]
    out.input_ids = torch.cat([data.input_ids[:end], ids, data.input_ids[end:]])
    out.labels = torch.cat([labels[:end], extra, labels[end:]])
    out.num_tokens = data.num_tokens.clone()
    out.num_tokens[target] += ids.numel()
    return out


def drop_answer(data: TextAttributedData) -> TextAttributedData:
    """A copy of a tokenized graph without the target's tokens from the first supervised one on."""
    supervised = (data.labels >= 0).nonzero().view(-1) if "labels" in data else torch.empty(0)
    if supervised.numel() == 0:
        return data
    out = copy.copy(data)
    target = int(data.target)
    start, end = int(supervised[0]), int(data.num_tokens[: target + 1].sum())
    out.input_ids = torch.cat([data.input_ids[:start], data.input_ids[end:]])
    out.labels = torch.cat([data.labels[:start], data.labels[end:]])
    out.num_tokens = data.num_tokens.clone()
    out.num_tokens[target] -= end - start
    return out


def add_question_node(data: Data, question: str, mentions: Sequence[int] | Tensor | None = None) -> TextAttributedData:
    """A copy of a graph with a question as one more node, the target, that points at the nodes it mentions.

    Attributes with one row per node get one more that tells nothing: −1 in integers such as ``y``, NaN, False in masks.

    Args:
        data: Has ``text`` (or ``text_nodes``).
        question: The new node's text.
        mentions: The nodes the question is about; all nodes by default (whole-graph questions).

    Raises:
        ValueError: If a mentioned node is not in the graph, or the graph carries what new edges or the new node would
            lack: texts or attributes of edges, PyG's own features of nodes, tokens, pair features.
    """
    out = with_edge_index(data)
    if out.edge_index is None:
        out.edge_index = torch.empty(2, 0, dtype=torch.long)
    n, device = int(data.num_nodes or 0), out.edge_index.device
    if mentions is None:
        to = torch.arange(n, device=device)
    else:
        to = torch.as_tensor(mentions, dtype=torch.long, device=device).view(-1)
    if to.numel() and (int(to.min()) < 0 or int(to.max()) >= n):
        raise ValueError(f"add_question_node: 'mentions' is {to.tolist()}, expected node indices in [0, {n})")
    extra = [key for key, _ in out if key in EDGE_TEXT_KEYS or (key != "edge_index" and out.is_edge_attr(key))]
    if extra:
        raise ValueError(f"add_question_node: edges carry {extra}; turn them into nodes first (IncidenceGraph)")
    early = next((key for key in (*sorted(N_KEYS), *PAIR_KEYS, "num_tokens") if key in out), None)
    if early:
        raise ValueError(
            f"add_question_node: the graph has '{early}', which a question lacks; add it after the question"
        )
    out.update(rows_for_more_nodes(out, 1))
    out.text = [*node_texts(data), question]
    out.edge_index = torch.cat([out.edge_index, torch.stack([torch.full_like(to, n), to])], dim=1)
    out.num_nodes = n + 1
    out.target = n
    return out

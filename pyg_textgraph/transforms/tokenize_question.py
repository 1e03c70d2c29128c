from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TextAttributedData, answer_ids, append_to_target, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@functional_transform("tokenize_question")
class TokenizeQuestion(BaseTransform):
    r"""Tokens of a graph with a question node, each graph with an answer of its own (functional name:
    :obj:`tokenize_question`).

    The target, which is the question, reads ``{question}\n A: {answer}``; the answer is supervised, end token included.
    Without ``answer`` it ends before it, ready for :meth:`GTLM.generate <pyg_textgraph.nn.GTLM.generate>`. For one
    question with few answers there is :class:`~pyg_textgraph.transforms.TokenizeText` with a prompt.

    Args:
        tokenizer: Any Hugging Face tokenizer with an end token.
        suffix: Between question and answer.
        empty: What stands for an empty text; ``"error"`` refuses it.

    Shapes:
        - **data.input_ids**, **data.labels** (T,), **data.num_tokens** (N,)

    Raises:
        ValueError: If the graph has no texts or no ``target``, or a text or the answer has no tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, suffix: str = "\n A:", empty: str = "error") -> None:
        self.tokenizer, self.suffix, self.empty = tokenizer, suffix, empty
        self.suffix_ids = torch.tensor(tokenizer(suffix, add_special_tokens=False)["input_ids"], dtype=torch.long)

    def forward(self, data: Data) -> TextAttributedData:
        out = tokenize(data, self.tokenizer, empty=self.empty)
        if "answer" not in data:
            return append_to_target(out, self.suffix_ids)
        answer = answer_ids(self.tokenizer, data.answer)
        return append_to_target(out, torch.cat([self.suffix_ids, answer]), num_supervised=answer.numel())

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(suffix={self.suffix!r})"

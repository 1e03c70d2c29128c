from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TaskPrompt, TextAttributedData, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@functional_transform("tokenize_text")
class TokenizeText(BaseTransform):
    r"""Adds the tokens of every node's text (functional name: :obj:`tokenize_text`).

    With a **prompt**, the target's text is followed by its question, and by the answer where ``data.y`` names one: the
    graph's class, or that of the target where there is one per node; a negative class is an unknown one.

    Args:
        tokenizer: Any Hugging Face tokenizer.
        prompt: A question and its possible answers, for graphs with ``data.target``.
        max_tokens: Cuts the texts of all nodes but the target; no cut by default.
        max_target_tokens: Cuts the target's text.
        empty: What stands for an empty text; ``"error"`` refuses it.

    Shapes:
        - **data.input_ids** (T,), **data.num_tokens** (N,); with a prompt **data.labels** (T,)

    Raises:
        ValueError: If the graph has no texts, one is empty and there is no placeholder, or ``data.y`` is no class.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: TaskPrompt | None = None,
        max_tokens: int | None = None,
        max_target_tokens: int | None = None,
        empty: str = "error",
    ) -> None:
        self.tokenizer, self.prompt, self.empty = tokenizer, prompt, empty
        self.max_tokens, self.max_target_tokens = max_tokens, max_target_tokens

    def forward(self, data: Data) -> TextAttributedData:
        out = tokenize(
            data,
            self.tokenizer,
            max_tokens=self.max_tokens,
            max_target_tokens=self.max_target_tokens,
            empty=self.empty,
        )
        if self.prompt is None:
            return out
        return self.prompt.append(out, self._answer(out) if self.prompt.answers else None)

    @staticmethod
    def _answer(data: TextAttributedData) -> int | None:
        if data.get("y") is None:
            return None
        y = torch.as_tensor(data.y).view(-1)
        if y.numel() > 1 and y.numel() == data.num_nodes and "target" in data:
            y = y[int(data.target)].view(1)
        if y.numel() != 1:
            got = tuple(torch.as_tensor(data.y).shape)
            raise ValueError(f"TokenizeText: 'y' is of shape {got}, expected one class, or one of each node")
        return int(y) if float(y) >= 0 else None

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(max_tokens={self.max_tokens}, max_target_tokens={self.max_target_tokens}, "
            f"prompt={self.prompt})"
        )

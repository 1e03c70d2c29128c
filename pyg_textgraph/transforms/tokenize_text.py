from __future__ import annotations

from typing import TYPE_CHECKING

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TaskPrompt, TextAttributedData, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@functional_transform("tokenize_text")
class TokenizeText(BaseTransform):
    r"""Adds the tokens of every node's text (functional name: :obj:`tokenize_text`).

    With a **prompt**, the target's text is followed by its question, and by the answer where ``data.y`` names one.

    Args:
        tokenizer: Any Hugging Face tokenizer.
        prompt: A question and its possible answers, for graphs with ``data.target``.
        max_tokens: Cuts the texts of all nodes but the target; no cut by default.
        max_target_tokens: Cuts the target's text.
        empty: What stands for an empty text; ``"error"`` refuses it.

    Shapes:
        - **data.input_ids** (T,), **data.num_tokens** (N,); with a prompt **data.labels** (T,)

    Raises:
        ValueError: If the graph has no texts, or one is empty and there is no placeholder.
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
        answer = int(data.y) if self.prompt.answers and data.get("y") is not None else None
        return self.prompt.append(out, answer)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(max_tokens={self.max_tokens}, max_target_tokens={self.max_target_tokens}, "
            f"prompt={self.prompt})"
        )

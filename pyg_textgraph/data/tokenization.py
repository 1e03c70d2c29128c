"""Texts to token ids, without special tokens: a node's tokens mean the same wherever the node stands."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from pyg_textgraph.data.text_attributed_data import TextAttributedData

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def node_texts(data: Data) -> list[str]:
    """The texts of a graph, from ``text`` or, as public data sets name it, ``text_nodes``.

    Raises:
        ValueError: If there are none, or not one string per node.
    """
    texts = next((data[key] for key in ("text", "text_nodes") if key in data), None)
    if texts is None:
        raise ValueError("the graph has neither 'text' nor 'text_nodes', expected one string per node")
    if len(texts) != data.num_nodes:
        raise ValueError(f"'text' has {len(texts)} entries but the graph has {data.num_nodes} nodes")
    return list(texts)


def check_unicode(text: str, name: str) -> None:
    """Refuses half surrogate pairs, which no tokenizer takes.

    Raises:
        ValueError: Naming the text and the place.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        way_out = "decode with errors='replace', or text.encode(errors='replace').decode()"
        raise ValueError(f"{name} has a lone surrogate at character {error.start}; {way_out}") from None


def tokenize_texts(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    empty: str = "error",
    *,
    progress: bool = False,
    chunk: int = 4096,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Tokenizes many texts.

    Args:
        texts: The texts.
        tokenizer: Any Hugging Face tokenizer.
        empty: What stands for a text without tokens; ``"error"`` refuses it.
        progress: Whether to show a progress bar.
        chunk: Texts per call of the tokenizer.
        first: Number of the first text, in messages.

    Shapes:
        - **returns** token ids (T,) int32 and their number per text (N,) int64

    Raises:
        ValueError: If a text has a lone surrogate, or is empty and there is no placeholder, or an empty one.
        TypeError: If an entry is not a string.
    """
    bad = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise TypeError(f"text {first + bad} is {type(texts[bad]).__name__}, expected str")
    for i, text in enumerate(texts, start=first):
        check_unicode(text, f"text {i}")
    placeholder: list[int] = [] if empty == "error" else tokenizer(empty, add_special_tokens=False)["input_ids"]
    ids: list[Tensor] = []
    count = array("q")  # 8 bytes a text, as there may be very many
    for start in tqdm(range(0, len(texts), chunk), "tokenizing", disable=not progress, unit_scale=chunk):
        part = [text if text.strip() else "" for text in texts[start : start + chunk]]
        rows = [row or placeholder for row in tokenizer(part, add_special_tokens=False)["input_ids"]]
        if not all(rows):
            way_out = "pass empty='…' (any placeholder)" if empty == "error" else f"the placeholder {empty!r} is empty"
            raise ValueError(f"text {first + start + rows.index([])} has no tokens; {way_out}")
        ids.append(torch.from_numpy(np.fromiter(chain.from_iterable(rows), np.int32)))
        count.extend(map(len, rows))
    return torch.cat(ids) if ids else torch.empty(0, dtype=torch.int32), torch.tensor(count, dtype=torch.long)


def tokenize(
    data: Data,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_tokens: int | None = None,
    max_target_tokens: int | None = None,
    empty: str = "error",
) -> TextAttributedData:
    """A copy of a graph with ``input_ids`` and ``num_tokens``.

    Args:
        data: Has ``text`` (or ``text_nodes``), one string per node.
        tokenizer: Any Hugging Face tokenizer.
        max_tokens: Cuts the texts of all nodes but the target; no cut by default.
        max_target_tokens: Cuts the target's text.
        empty: See :func:`tokenize_texts`.
    """
    from pyg_textgraph.data.token_store import TokenStore

    out = TextAttributedData.from_data(data)
    store = TokenStore(*tokenize_texts(node_texts(data), tokenizer, empty))
    out.input_ids, out.num_tokens = store.gather(
        torch.arange(out.num_nodes), out.get("target"), max_tokens=max_tokens, max_target_tokens=max_target_tokens
    )
    return out

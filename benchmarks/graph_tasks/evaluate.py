"""How good the answers are: written ones, chosen ones, and the next token's given the right ones before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from tqdm import tqdm

from pyg_textgraph.data import answer_ids
from pyg_textgraph.nn import GTLM


def written(
    model: GTLM, data: Dataset[Any], longest: int, batch_size: int = 16, progress: str | None = None
) -> list[tuple[str, bool]]:
    """What the model writes in at most **longest** tokens, end token included, and whether it ends."""
    out: list[tuple[str, bool]] = []
    for batch in tqdm(DataLoader(data, batch_size), progress, disable=progress is None, leave=False):
        rows = model.generate(batch.to(model.device), longest, return_ids=True)
        out += [(model.tokenizer.decode(row), len(row) < longest) for row in rows]  # type: ignore[union-attr]
    return out


def ended(answers: Sequence[tuple[str, bool]]) -> list[str | None]:
    """The answers that end by themselves, None for the others."""
    return [text if whole else None for text, whole in answers]


@torch.no_grad()
def teacher_forced_match(model: GTLM, data: Dataset[Any], batch_size: int = 16) -> float:
    """The share of graphs whose every answer token is the likeliest after the right ones. No accuracy: the model is
    shown the beginning of the answer."""
    model.eval()
    right = total = 0
    for batch in DataLoader(data, batch_size):
        graphs: Batch = batch
        count = [int((graph.labels >= 0).sum()) for graph in graphs.to_data_list()]
        out = model(graphs.to(model.device))
        hit = (out.logits.argmax(-1) == out.labels).cpu().split(count)
        right, total = right + sum(bool(h.all()) for h in hit), total + len(count)
    return right / max(1, total)


def longest_answer(model: GTLM, answers: Sequence[str]) -> int:
    """Tokens of the longest answer, end token included."""
    return max(answer_ids(model.tokenizer, answer).numel() for answer in set(answers))


def most_frequent(train: Sequence[str], test: Sequence[str]) -> float:
    """How often the most frequent training answer is right."""
    guess = Counter(train).most_common(1)[0][0]
    return sum(answer == guess for answer in test) / max(1, len(test))

"""Answers of a model for many graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from tqdm import tqdm

if TYPE_CHECKING:
    from pyg_textgraph.nn import TextGraphLM


def class_scores(
    model: TextGraphLM,
    dataset: Dataset[Any],
    names: Sequence[str],
    *,
    batch_size: int = 16,
    num_workers: int = 0,
    progress: str | None = None,
) -> Tensor:
    """Log-probabilities of class names for every graph of a data set, in its order.

    Args:
        model: Scores by :meth:`TextGraphLM.classify <pyg_textgraph.nn.TextGraphLM.classify>`.
        dataset: Text graphs with targets.
        names: The class names.
        batch_size: Graphs at a time.
        num_workers: Processes that load data.
        progress: Name of a progress bar; none by default.

    Shapes:
        - **returns** (len(dataset), C), on the CPU
    """
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers)
    scores = [
        model.classify(batch.to(model.device), names).cpu()
        for batch in tqdm(loader, progress, disable=progress is None, leave=False)
    ]
    return torch.cat(scores) if scores else torch.empty(0, len(names))


def answer_tokens(batch: Data) -> list[Tensor]:
    """The true answers in the data: each graph's supervised tokens but the last, which is the end token."""
    graphs = batch.to_data_list() if isinstance(batch, Batch) else [batch]
    return [graph.labels[graph.labels >= 0][:-1] for graph in graphs]


def written_answers(model: TextGraphLM, batch: Data, max_new_tokens: int) -> list[str | None]:
    """What the model writes for each graph, space around it left out; None where it did not come to an end.

    Args:
        model: Writes by :meth:`GTLM.generate <pyg_textgraph.nn.GTLM.generate>`.
        batch: Text graphs with targets.
        max_new_tokens: How many tokens at most, the end token included.
    """
    ids: list[Any] = model.generate(batch, max_new_tokens, return_ids=True)
    texts = model._tokenizer().batch_decode(ids)
    return [text.strip() if len(row) < max_new_tokens else None for row, text in zip(ids, texts, strict=True)]

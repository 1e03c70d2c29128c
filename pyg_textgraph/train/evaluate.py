"""Answers of a model for many graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
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

"""Our metrics as :class:`torchmetrics.Metric`, for what torchmetrics itself does not have.

They add up over batches and processes, go into a :class:`~torchmetrics.MetricCollection` and are logged by Lightning.
For scores of a fixed number of classes torchmetrics has ``MulticlassAccuracy`` and ``MulticlassF1Score``, for areas
under curves ``BinaryAUROC``, and for several right answers per query ``torchmetrics.retrieval``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from pyg_textgraph.metrics.classification import check_answers, check_classes, same_text
from pyg_textgraph.metrics.ranking import positive_ranks

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "pyg_textgraph.metrics.torchmetrics needs torchmetrics; pip install 'pyg-textgraph[torchmetrics]'"
    ) from error


class TextExactMatch(Metric):
    """The share of written answers that equal the truth: :func:`~pyg_textgraph.metrics.exact_match`.

    Args:
        ignore_case: Whether ``"Yes"`` is ``"yes"``.
        **kwargs: Of :class:`torchmetrics.Metric`.

    Shapes: **compute** ()

    Raises:
        ValueError: If a batch has not as many answers as truths, or is empty.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    right: Tensor
    total: Tensor

    def __init__(self, ignore_case: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignore_case = ignore_case
        for name in ("right", "total"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")
        # a MetricCollection updates metrics of equal states once: these are never equal
        self.add_state("kind", torch.tensor(int(ignore_case)), dist_reduce_fx="max")

    def update(self, answers: Sequence[str | None], truths: Sequence[str]) -> None:
        """Adds a batch; None is an answer that did not come to an end."""
        check_answers("TextExactMatch", answers, truths)
        self.right += sum(same_text(a, t, self.ignore_case) for a, t in zip(answers, truths, strict=True))
        self.total += len(truths)

    def compute(self) -> Tensor:
        """The share so far; NaN before the first batch."""
        return self.right / self.total


class TextMacroF1(Metric):
    """The mean :math:`F_1` over classes of written answers: :func:`~pyg_textgraph.metrics.macro_f1`.

    Unlike ``torchmetrics.classification.MulticlassF1Score``, answers may be any text: one that names no class is wrong
    for its true class and a false positive of none.

    Args:
        classes: All classes there are, each once.
        **kwargs: Of :class:`torchmetrics.Metric`.

    Shapes: **compute** ()

    Raises:
        ValueError: If a class is there twice, if a batch has not as many answers as truths or is empty, or if a truth
            is no class.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    right: Tensor
    answered: Tensor
    true: Tensor

    def __init__(self, classes: Sequence[str | int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_classes("TextMacroF1", classes)
        self.place = {name: i for i, name in enumerate(classes)}
        for name in ("right", "answered", "true"):
            self.add_state(name, torch.zeros(len(self.place), dtype=torch.long), dist_reduce_fx="sum")
        # a MetricCollection updates metrics of equal states once: other classes are another state
        self.add_state("kind", torch.tensor(crc32(repr(list(classes)).encode())), dist_reduce_fx="max")

    def update(self, answers: Sequence[str | int | None], truths: Sequence[str | int]) -> None:
        """Adds a batch."""
        check_answers("TextMacroF1", answers, truths)
        check_classes("TextMacroF1", list(self.place), truths)
        self.answered += self._count([a for a in answers if a in self.place])
        self.true += self._count(truths)
        self.right += self._count([t for a, t in zip(answers, truths, strict=True) if a == t])

    def _count(self, names: Sequence[Any]) -> Tensor:
        places = torch.tensor([self.place[name] for name in names], dtype=torch.long, device=self.device)
        return places.bincount(minlength=len(self.place))

    def compute(self) -> Tensor:
        """The mean so far; NaN before the first batch."""
        size = self.answered + self.true  # 2 TP + FP + FN
        return (2 * self.right / size)[size > 0].mean()


class CandidateRanking(Metric):
    """P@1, MRR and NDCG of one right answer among candidates: :func:`~pyg_textgraph.metrics.ranking_metrics`.

    ``torchmetrics.retrieval`` gives the same numbers for positive scores that all differ. Here scores may be negative,
    as log-probabilities are, which its ``RetrievalMRR`` takes for irrelevant; a candidate that ties with the right
    answer, or whose score is NaN, stands before it, so a model that scores all alike gets no credit; and sums are kept
    instead of all scores.

    Args:
        **kwargs: Of :class:`torchmetrics.Metric`.

    Shapes:
        - **positive** (Q,); **negative** (Q, M), −inf for a candidate that does not exist
        - **compute** a dictionary of ``"p@1"``, ``"mrr"`` and ``"ndcg"``, each ()
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    gained: Tensor
    total: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("gained", torch.zeros(3, dtype=torch.double), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, positive: Tensor, negative: Tensor) -> None:
        """Adds a batch of queries: the scores of their right answers, and of the others."""
        rank = positive_ranks(positive, negative).double()
        self.gained += torch.stack([(rank == 1).double(), 1 / rank, 1 / torch.log2(1 + rank)]).sum(1)
        self.total += len(rank)

    def compute(self) -> dict[str, Tensor]:
        """The means so far; NaN before the first batch."""
        return dict(zip(("p@1", "mrr", "ndcg"), (self.gained / self.total).unbind(), strict=True))

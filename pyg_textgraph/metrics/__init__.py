"""What OGB's evaluators and torchmetrics do not have."""

from pyg_textgraph.metrics.mcnemar import mcnemar
from pyg_textgraph.metrics.ranking import auc, positive_ranks, ranking_metrics, sample_candidates

__all__ = ["auc", "mcnemar", "positive_ranks", "ranking_metrics", "sample_candidates"]

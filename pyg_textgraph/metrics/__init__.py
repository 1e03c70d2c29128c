"""What OGB's evaluators and torchmetrics do not have."""

from pyg_textgraph.metrics.classification import exact_match, macro_f1
from pyg_textgraph.metrics.mcnemar import mcnemar
from pyg_textgraph.metrics.ranking import auc, positive_ranks, ranking_metrics, sample_candidates

__all__ = ["auc", "exact_match", "macro_f1", "mcnemar", "positive_ranks", "ranking_metrics", "sample_candidates"]

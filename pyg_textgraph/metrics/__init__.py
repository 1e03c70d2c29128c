"""What OGB's Evaluator and torchmetrics do not have."""

from pyg_textgraph.metrics.ranking import auc, positive_ranks, ranking_metrics, sample_candidates

__all__ = ["auc", "positive_ranks", "ranking_metrics", "sample_candidates"]

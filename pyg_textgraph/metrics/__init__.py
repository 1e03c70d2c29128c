"""What OGB's evaluators and torchmetrics do not have."""

from pyg_textgraph.metrics.mcnemar import mcnemar

__all__ = ["mcnemar"]

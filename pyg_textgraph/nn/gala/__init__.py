"""Graph-aligned language attention (arXiv 2606.15633): the hook, its calibration, scoring and diagnostics."""

from pyg_textgraph.nn.gala.calibration import (
    attention_entropy,
    entropy_strengths,
    gradient_strengths,
    head_gradient,
    tune_strength,
)
from pyg_textgraph.nn.gala.diagnostics import (
    average_neighbor_rank,
    bandwidth,
    edge_stretch,
    node_attention_similarity,
    node_rank,
    retention_bound,
    rope_mean_cosine,
    rope_retention,
    token_rank,
)
from pyg_textgraph.nn.gala.hook import GaLA, inverse_distance, pad_left
from pyg_textgraph.nn.gala.scoring import centered, named_option, option_ids, option_scores
from pyg_textgraph.nn.gala.strengths import HeadStrengths

__all__ = [
    "GaLA",
    "HeadStrengths",
    "attention_entropy",
    "average_neighbor_rank",
    "bandwidth",
    "centered",
    "edge_stretch",
    "entropy_strengths",
    "gradient_strengths",
    "head_gradient",
    "inverse_distance",
    "named_option",
    "node_attention_similarity",
    "node_rank",
    "option_ids",
    "option_scores",
    "pad_left",
    "retention_bound",
    "rope_mean_cosine",
    "rope_retention",
    "token_rank",
    "tune_strength",
]

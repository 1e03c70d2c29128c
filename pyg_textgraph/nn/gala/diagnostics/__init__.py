"""Why distance in a prompt costs attention, and how much of it a model loses."""

from pyg_textgraph.nn.gala.diagnostics.attention import (
    attention_scores,
    average_neighbor_rank,
    node_attention_similarity,
    node_rank,
    token_rank,
)
from pyg_textgraph.nn.gala.diagnostics.retention import retention_bound, rope_mean_cosine, rope_retention
from pyg_textgraph.nn.gala.diagnostics.structure import bandwidth, edge_stretch

__all__ = [
    "attention_scores",
    "average_neighbor_rank",
    "bandwidth",
    "edge_stretch",
    "node_attention_similarity",
    "node_rank",
    "retention_bound",
    "rope_mean_cosine",
    "rope_retention",
    "token_rank",
]

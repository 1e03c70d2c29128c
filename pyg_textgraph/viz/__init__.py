"""Figures that show what models do; they need matplotlib."""

from pyg_textgraph.viz.attention import plot_node_attention
from pyg_textgraph.viz.bias import plot_bias_size, plot_distance_tables
from pyg_textgraph.viz.graph_machine import (
    distance_shares,
    plot_distances,
    plot_token_edges,
    plot_weight_entropy,
    weight_entropy,
)
from pyg_textgraph.viz.training import plot_cost, plot_learning_curves, read_log

__all__ = [
    "distance_shares",
    "plot_bias_size",
    "plot_cost",
    "plot_distance_tables",
    "plot_distances",
    "plot_learning_curves",
    "plot_node_attention",
    "plot_token_edges",
    "plot_weight_entropy",
    "read_log",
    "weight_entropy",
]

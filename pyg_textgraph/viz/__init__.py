"""Figures that show what models do; they need matplotlib."""

from pyg_textgraph.viz.graph_machine import (
    distance_shares,
    plot_distances,
    plot_token_edges,
    plot_weight_entropy,
    weight_entropy,
)

__all__ = ["distance_shares", "plot_distances", "plot_token_edges", "plot_weight_entropy", "weight_entropy"]

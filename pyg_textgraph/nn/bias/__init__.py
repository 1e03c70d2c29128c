"""Biases per pair of nodes, learned from the graph's structure."""

from pyg_textgraph.nn.bias.features import Flow, MagneticFeatures, PairFeatures, graph_ptr
from pyg_textgraph.nn.bias.graph_bias import BIASES, GraphBias, GraphBiasConfig
from pyg_textgraph.nn.bias.layers import MagneticBias, RRWPBias, SPDBias

__all__ = [
    "BIASES",
    "Flow",
    "GraphBias",
    "GraphBiasConfig",
    "MagneticBias",
    "MagneticFeatures",
    "PairFeatures",
    "RRWPBias",
    "SPDBias",
    "graph_ptr",
]

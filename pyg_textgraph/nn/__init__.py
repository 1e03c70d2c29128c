"""Layers and models."""

from pyg_textgraph.nn.bias import GraphBias, GraphBiasConfig
from pyg_textgraph.nn.graphformers_layer import GraphFormersLayer, NeighborhoodAttention
from pyg_textgraph.nn.gtlm_conv import GraphStructure, GTLMConv
from pyg_textgraph.nn.link_loss import KnownLinks, false_negatives, link_loss, pair_filter
from pyg_textgraph.nn.models.graphformers import GraphFormers, GraphFormersConfig, PooledTextEncoder, TextGraphEncoder
from pyg_textgraph.nn.models.gtlm import GTLM, GTLMConfig, GTLMOutput

__all__ = [
    "GTLM",
    "GTLMConfig",
    "GTLMConv",
    "GTLMOutput",
    "GraphBias",
    "GraphBiasConfig",
    "GraphFormers",
    "GraphFormersConfig",
    "GraphFormersLayer",
    "GraphStructure",
    "KnownLinks",
    "NeighborhoodAttention",
    "PooledTextEncoder",
    "TextGraphEncoder",
    "false_negatives",
    "link_loss",
    "pair_filter",
]

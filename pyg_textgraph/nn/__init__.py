"""Layers and models."""

from pyg_textgraph.nn.bias import GraphBias, GraphBiasConfig
from pyg_textgraph.nn.gala import GaLA, HeadStrengths
from pyg_textgraph.nn.gtlm_conv import GraphStructure, GTLMConv
from pyg_textgraph.nn.models.gtlm import GTLM, GTLMConfig, GTLMOutput

__all__ = [
    "GTLM",
    "GTLMConfig",
    "GTLMConv",
    "GTLMOutput",
    "GaLA",
    "GraphBias",
    "GraphBiasConfig",
    "GraphStructure",
    "HeadStrengths",
]

"""Layers and models."""

from pyg_textgraph.nn.bias import GraphBias, GraphBiasConfig
from pyg_textgraph.nn.gala import GaLA, HeadStrengths
from pyg_textgraph.nn.graph_machine_layer import GraphMachineLayer
from pyg_textgraph.nn.graph_writer import GraphWriter, WrittenGraph
from pyg_textgraph.nn.graphformers_layer import GraphFormersLayer, NeighborhoodAttention
from pyg_textgraph.nn.gtlm_conv import GraphStructure, GTLMConv
from pyg_textgraph.nn.link_loss import KnownLinks, false_negatives, link_loss, pair_filter
from pyg_textgraph.nn.models.graph_machine import GraphMachineConfig, GraphMachineLM
from pyg_textgraph.nn.models.graph_token_lm import GraphTokenConfig, GraphTokenLM, GraphTokenOutput
from pyg_textgraph.nn.models.graphformers import GraphFormers, GraphFormersConfig, PooledTextEncoder, TextGraphEncoder
from pyg_textgraph.nn.models.gtlm import GTLM, GTLMConfig, GTLMOutput
from pyg_textgraph.nn.models.text_graph_lm import TextGraphLM
from pyg_textgraph.nn.sparse_edge_attention import SparseEdgeAttention
from pyg_textgraph.nn.sparse_edge_referral import SparseEdgeReferral

__all__ = [
    "GTLM",
    "GTLMConfig",
    "GTLMConv",
    "GTLMOutput",
    "GaLA",
    "GraphBias",
    "GraphBiasConfig",
    "GraphFormers",
    "GraphFormersConfig",
    "GraphFormersLayer",
    "GraphMachineConfig",
    "GraphMachineLM",
    "GraphMachineLayer",
    "GraphStructure",
    "GraphTokenConfig",
    "GraphTokenLM",
    "GraphTokenOutput",
    "GraphWriter",
    "HeadStrengths",
    "KnownLinks",
    "NeighborhoodAttention",
    "PooledTextEncoder",
    "SparseEdgeAttention",
    "SparseEdgeReferral",
    "TextGraphEncoder",
    "TextGraphLM",
    "WrittenGraph",
    "false_negatives",
    "link_loss",
    "pair_filter",
]

"""Tensor in, tensor out: the computations that the layers are made of."""

from pyg_textgraph.ops.edge_attention import edge_attention
from pyg_textgraph.ops.graph_attention import graph_attention
from pyg_textgraph.ops.mix import mix
from pyg_textgraph.ops.neighborhood_attention import neighborhood_attention
from pyg_textgraph.ops.packed_attention import packed_attention
from pyg_textgraph.ops.refer import refer
from pyg_textgraph.ops.sparsify import sparsify, temper

__all__ = [
    "edge_attention",
    "graph_attention",
    "mix",
    "neighborhood_attention",
    "packed_attention",
    "refer",
    "sparsify",
    "temper",
]

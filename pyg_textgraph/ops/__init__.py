"""Tensor in, tensor out: the computations that the layers are made of."""

from pyg_textgraph.ops.graph_attention import graph_attention
from pyg_textgraph.ops.neighborhood_attention import neighborhood_attention
from pyg_textgraph.ops.packed_attention import packed_attention

__all__ = ["graph_attention", "neighborhood_attention", "packed_attention"]

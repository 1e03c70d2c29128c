"""Tensor in, tensor out: the computations that the layers are made of."""

from pyg_textgraph.ops.graph_attention import graph_attention

__all__ = ["graph_attention"]

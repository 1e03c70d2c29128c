"""Operations on plain tensors: each is defined by its reference and has faster backends."""

from pyg_textgraph.ops.edge_attention import edge_attention
from pyg_textgraph.ops.mix import mix
from pyg_textgraph.ops.refer import refer
from pyg_textgraph.ops.sparsify import sparsify, temper

__all__ = ["edge_attention", "mix", "refer", "sparsify", "temper"]

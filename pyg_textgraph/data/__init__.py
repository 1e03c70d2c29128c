"""Text graphs, their tokens, and how a batch of them becomes one sequence."""

from pyg_textgraph.data.layout import TokenLayout, to_dense_pairs
from pyg_textgraph.data.text_attributed_data import TextAttributedData

__all__ = ["TextAttributedData", "TokenLayout", "to_dense_pairs"]

"""What language models that read text graphs share: graph attention in a decoder, adapters, files and generation."""

from pyg_textgraph.nn.models.text_graph_lm.model import TextGraphLM

__all__ = ["TextGraphLM"]

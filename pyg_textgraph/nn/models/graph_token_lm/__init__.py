"""Graph tokens: one vector per node as a language model's soft token, the baseline that GTLM is measured against."""

from pyg_textgraph.nn.models.graph_token_lm.config import GraphTokenConfig
from pyg_textgraph.nn.models.graph_token_lm.model import GraphTokenLM, GraphTokenOutput

__all__ = ["GraphTokenConfig", "GraphTokenLM", "GraphTokenOutput"]

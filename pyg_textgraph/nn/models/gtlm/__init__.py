"""GTLM: graph biases inside a language model's attention."""

from pyg_textgraph.nn.models.gtlm.config import GTLMConfig
from pyg_textgraph.nn.models.gtlm.model import GTLM, GTLMOutput

__all__ = ["GTLM", "GTLMConfig", "GTLMOutput"]

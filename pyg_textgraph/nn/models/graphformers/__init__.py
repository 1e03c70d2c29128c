"""GraphFormers and the cascades it is measured against."""

from pyg_textgraph.nn.models.graphformers.base import TextGraphEncoder
from pyg_textgraph.nn.models.graphformers.cache import NodeCache
from pyg_textgraph.nn.models.graphformers.config import GraphFormersConfig
from pyg_textgraph.nn.models.graphformers.model import GraphFormers
from pyg_textgraph.nn.models.graphformers.pooled import PooledTextEncoder
from pyg_textgraph.nn.models.graphformers.retrieval import TextIndex

__all__ = ["GraphFormers", "GraphFormersConfig", "NodeCache", "PooledTextEncoder", "TextGraphEncoder", "TextIndex"]

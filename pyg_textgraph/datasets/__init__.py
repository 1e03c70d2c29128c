"""Text-attributed graphs."""

from pyg_textgraph.datasets.wordnet import WordNet, WordNetVerbs

__all__ = ["WordNet", "WordNetVerbs"]

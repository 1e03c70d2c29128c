"""Ego graphs of many nodes at once, out of one big graph."""

from pyg_textgraph.sampling.csr import CSRGraph
from pyg_textgraph.sampling.ego import Egos, sample_egos
from pyg_textgraph.sampling.ego_text_dataset import EgoTextDataset
from pyg_textgraph.sampling.fanout import sample_fanout
from pyg_textgraph.sampling.neighbors import NeighborTextSampler, sample_neighbors
from pyg_textgraph.sampling.text_graphs import ToTextGraphs, ego_graph

__all__ = [
    "CSRGraph",
    "EgoTextDataset",
    "Egos",
    "NeighborTextSampler",
    "ToTextGraphs",
    "ego_graph",
    "sample_egos",
    "sample_fanout",
    "sample_neighbors",
]

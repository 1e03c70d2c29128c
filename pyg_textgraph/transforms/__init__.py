"""Structural features, ego graphs and tokens as PyG transforms."""

from pyg_textgraph.transforms.add_magnetic_laplacian import AddMagneticLaplacian
from pyg_textgraph.transforms.add_rrwp import AddRRWP
from pyg_textgraph.transforms.add_spd import AddSPD
from pyg_textgraph.transforms.ego_text_sampler import EgoTextSampler
from pyg_textgraph.transforms.hide_part import HideEdges, HideNode
from pyg_textgraph.transforms.incidence_graph import IncidenceGraph
from pyg_textgraph.transforms.link_split import SplitTextLinks
from pyg_textgraph.transforms.pairs import k_hop_pairs
from pyg_textgraph.transforms.retrieve_subgraph import RetrieveSubgraph
from pyg_textgraph.transforms.serialize_graph import SerializeGraph
from pyg_textgraph.transforms.tokenize_action import TokenizeAction
from pyg_textgraph.transforms.tokenize_question import TokenizeQuestion
from pyg_textgraph.transforms.tokenize_text import TokenizeText

__all__ = [
    "AddMagneticLaplacian",
    "AddRRWP",
    "AddSPD",
    "EgoTextSampler",
    "HideEdges",
    "HideNode",
    "IncidenceGraph",
    "RetrieveSubgraph",
    "SerializeGraph",
    "SplitTextLinks",
    "TokenizeAction",
    "TokenizeQuestion",
    "TokenizeText",
    "k_hop_pairs",
]

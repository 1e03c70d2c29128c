"""Text-attributed graphs."""

from pyg_textgraph.datasets.action_steps import ActionSteps
from pyg_textgraph.datasets.attach_text import attach_text
from pyg_textgraph.datasets.connectivity import Connectivity
from pyg_textgraph.datasets.family_tree import FamilyTree
from pyg_textgraph.datasets.frames import from_csv, from_dataframes
from pyg_textgraph.datasets.graph_qa import GraphQA
from pyg_textgraph.datasets.kg_qa import KGQA
from pyg_textgraph.datasets.ogb_nodes import ogb_nodes
from pyg_textgraph.datasets.question_graphs import GraphQuestion, QuestionGraphs
from pyg_textgraph.datasets.relational import from_tables
from pyg_textgraph.datasets.text_graph_folder import TextGraphFolder
from pyg_textgraph.datasets.wordnet import WordNet, WordNetVerbs

__all__ = [
    "KGQA",
    "ActionSteps",
    "Connectivity",
    "FamilyTree",
    "GraphQA",
    "GraphQuestion",
    "QuestionGraphs",
    "TextGraphFolder",
    "WordNet",
    "WordNetVerbs",
    "attach_text",
    "from_csv",
    "from_dataframes",
    "from_tables",
    "ogb_nodes",
]

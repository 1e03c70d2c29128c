"""Text graphs, their tokens, and how a batch of them becomes one sequence."""

from pyg_textgraph.data.action_tokens import CONTROL_TOKENS, ActionParser, ActionTokens
from pyg_textgraph.data.graph_actions import Action, AddEdge, AddNode, GraphGrammar, Stop, action_steps
from pyg_textgraph.data.graph_templates import NEIGHBOR_LABELS, NODE_CLASS, GraphTemplate
from pyg_textgraph.data.layout import TokenLayout, to_dense_pairs
from pyg_textgraph.data.linearization import GraphPrompt, graph_text, linearize, node_order
from pyg_textgraph.data.packed_texts import NeighborBatch, PackedTexts
from pyg_textgraph.data.prompts import TaskPrompt, add_question_node, answer_ids, append_to_target
from pyg_textgraph.data.span_masking import SpanMasking
from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.data.text_attributed_data import TextAttributedData
from pyg_textgraph.data.token_store import TokenStore
from pyg_textgraph.data.tokenization import node_texts, tokenize, tokenize_texts

__all__ = [
    "CONTROL_TOKENS",
    "NEIGHBOR_LABELS",
    "NODE_CLASS",
    "Action",
    "ActionParser",
    "ActionTokens",
    "AddEdge",
    "AddNode",
    "GraphGrammar",
    "GraphPrompt",
    "GraphTemplate",
    "NeighborBatch",
    "PackedTexts",
    "SpanMasking",
    "SparseEdges",
    "Stop",
    "TaskPrompt",
    "TextAttributedData",
    "TokenLayout",
    "TokenStore",
    "action_steps",
    "add_question_node",
    "answer_ids",
    "append_to_target",
    "graph_text",
    "linearize",
    "node_order",
    "node_texts",
    "to_dense_pairs",
    "tokenize",
    "tokenize_texts",
]

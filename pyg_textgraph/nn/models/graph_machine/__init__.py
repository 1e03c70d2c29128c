"""Graph Machine, a language model whose tokens carry and compose sparse pointers (GM-2, arXiv 2609.02881)."""

from pyg_textgraph.nn.models.graph_machine.compute import Compute, training_compute
from pyg_textgraph.nn.models.graph_machine.config import PRESETS, GraphMachineConfig
from pyg_textgraph.nn.models.graph_machine.model import GraphMachineLM, GraphMachineModel, GraphMachineOutput

__all__ = [
    "PRESETS",
    "Compute",
    "GraphMachineConfig",
    "GraphMachineLM",
    "GraphMachineModel",
    "GraphMachineOutput",
    "training_compute",
]

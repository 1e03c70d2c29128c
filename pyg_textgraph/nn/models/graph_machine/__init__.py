"""Graph Machine, a language model whose tokens carry and compose sparse pointers (GM-2, arXiv 2609.02881)."""

from transformers import AutoConfig, AutoModelForCausalLM

from pyg_textgraph.nn.models.graph_machine.compute import Compute, key_access, training_compute
from pyg_textgraph.nn.models.graph_machine.config import PRESETS, GraphMachineConfig
from pyg_textgraph.nn.models.graph_machine.model import GraphMachineLM, GraphMachineModel, GraphMachineOutput

__all__ = [
    "PRESETS",
    "Compute",
    "GraphMachineConfig",
    "GraphMachineLM",
    "GraphMachineModel",
    "GraphMachineOutput",
    "key_access",
    "training_compute",
]

AutoConfig.register("graph_machine", GraphMachineConfig, exist_ok=True)
AutoModelForCausalLM.register(GraphMachineConfig, GraphMachineLM, exist_ok=True)

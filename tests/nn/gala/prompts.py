"""Prompts for tiny decoders: token ids and nodes without any tokenizer."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_textgraph.data import GraphPrompt

STAR = torch.tensor([[0, 0, 0], [1, 2, 3]])
PATH = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])


def prompt_of(edge_index: Tensor, num_nodes: int, tokens: int = 3, loose: int = 2, seed: int = 0) -> GraphPrompt:
    """Blocks of ``tokens`` random tokens, node 0 last, with tokens of no node before, between and after."""
    nodes = [-1] * loose
    for v in [*range(1, num_nodes), 0]:
        nodes += [v] * tokens + [-1]
    node = torch.tensor([*nodes, *[-1] * loose])
    ids = torch.randint(3, 100, node.shape, generator=torch.Generator().manual_seed(seed))
    return GraphPrompt("", ids, node, torch.zeros(num_nodes, 2, dtype=torch.long), edge_index, 0)

"""A map-style data set of ego text graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.sampling.text_graphs import ToTextGraphs

if TYPE_CHECKING:
    from pyg_textgraph.transforms.ego_text_sampler import EgoTextSampler


class EgoTextDataset(Dataset[TextAttributedData]):
    """The ego text graphs of some nodes, sampled on access; made by :meth:`EgoTextSampler.dataset`.

    A loader's batch is sampled at once (``__getitems__``), but an item is the same alone, in any batch and in any
    worker.

    Args:
        sampler: A sampler bound to the graph.
        nodes: The targets, one per item; indices, of which there may be none, or a mask.
        to_graphs: Makes text graphs of egos.

    Raises:
        ValueError: If a node is out of range.
    """

    def __init__(self, sampler: EgoTextSampler, nodes: Tensor | Sequence[int], to_graphs: ToTextGraphs) -> None:
        nodes = torch.as_tensor(nodes)
        if nodes.shape == (0,) and nodes.dtype != torch.bool:
            nodes = nodes.long()  # PyTorch takes an empty list for floating point
        size = len(to_graphs.store)
        if nodes.dtype == torch.bool:
            if nodes.shape != (size,):
                raise ValueError(
                    f"EgoTextDataset: the mask 'nodes' is of shape {tuple(nodes.shape)}, expected ({size},)"
                )
            nodes = nodes.nonzero().view(-1)
        if nodes.dim() != 1 or nodes.is_floating_point():
            raise ValueError(
                f"EgoTextDataset: 'nodes' is {nodes.dtype} of shape {tuple(nodes.shape)}, expected a mask or a list"
            )
        self.sampler, self.to_graphs = sampler, to_graphs
        self.nodes = nodes.long().cpu()
        bad = self.nodes[(self.nodes < 0) | (self.nodes >= size)]
        if bad.numel():
            raise ValueError(f"EgoTextDataset: 'nodes' holds {int(bad[0])} but the graph has {size} nodes")

    @property
    def class_names(self) -> list[str]:
        return self.to_graphs.class_names

    def set_epoch(self, epoch: int) -> None:
        """Re-samples all egos; call it before a loader's next iteration starts. Reaches persistent workers too."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.nodes.numel()

    def __getitem__(self, index: int) -> TextAttributedData:
        return self.__getitems__([range(len(self))[index]])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[TextAttributedData]:
        return self.to_graphs.graphs(self.sampler.sample(self.nodes[torch.as_tensor(indices, dtype=torch.long)]))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({len(self)}, {self.sampler})"

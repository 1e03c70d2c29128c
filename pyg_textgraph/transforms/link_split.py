from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data.checks import check_one_graph
from pyg_textgraph.data.text_attributed_data import PAIR_KEYS, TextAttributedData, take_rows, with_edge_index


@functional_transform("split_text_links")
class SplitTextLinks(BaseTransform):
    r"""Splits a graph's links for link prediction without leakage (functional name: :obj:`split_text_links`).

    A *link* is a pair of different nodes with an edge in at least one direction; it is split as a whole, reverse and
    parallel edges with it. In each of the three graphs ``edge_index`` holds the edges that may be used, and
    ``edge_label_index`` one column per link to be predicted, as the first of its edges points. Training links are
    among the training graph's edges: exclude each from its own prediction
    (:func:`~pyg_textgraph.sampling.sample_neighbors`). Validation sees training edges, test those of both.

    Args:
        num_val: Number of validation links, or their share.
        num_test: Number of test links, or their share.
        seed: Of the split.

    Shapes:
        - **data.edge_label_index** (2, M); edge attributes are cut to the edges that are left

    Raises:
        TypeError: If it does not get one homogeneous graph.
        ValueError: If there are not enough links, or the graph has pair features: they know all links.
    """

    def __init__(self, num_val: int | float = 0.1, num_test: int | float = 0.1, seed: int = 0) -> None:
        self.num_val, self.num_test, self.seed = num_val, num_test, seed

    def forward(self, data: Data) -> tuple[TextAttributedData, TextAttributedData, TextAttributedData]:
        check_one_graph(data, "SplitTextLinks")
        data = with_edge_index(data)
        if data.edge_index is None:
            raise ValueError("SplitTextLinks: the graph has no 'edge_index'")
        if early := next((key for key in PAIR_KEYS if key in data), None):
            raise ValueError(f"SplitTextLinks: the graph has '{early}', which tells of held-out links; add it after")
        first, link = unique_links(data.edge_index, int(data.num_nodes or 0))
        total = first.numel()
        num_val, num_test = (round(n * total) if isinstance(n, float) else n for n in (self.num_val, self.num_test))
        if isinstance(self.num_val, float) and isinstance(self.num_test, float) and self.num_val + self.num_test <= 1:
            num_test = min(num_test, total - num_val)  # two halves of three links
        if num_val < 0 or num_test < 0 or num_val + num_test > total:
            raise ValueError(f"SplitTextLinks: {num_val} + {num_test} links are asked for but the graph has {total}")
        order = torch.randperm(total, generator=torch.Generator().manual_seed(self.seed))
        part = torch.zeros(total, dtype=torch.long, device=data.edge_index.device)  # 0 train, 1 validation, 2 test
        part[order[:num_val]] = 1
        part[order[num_val : num_val + num_test]] = 2
        # a self-loop is no link: it stays in all three graphs
        edge_part = torch.where(link < 0, 0, part[link])
        train, val, test = (
            self._graph(data, edge_part < max(1, i), data.edge_index[:, first[part == i]]) for i in range(3)
        )
        return train, val, test

    @staticmethod
    def _graph(data: TextAttributedData, keep: Tensor, links: Tensor) -> TextAttributedData:
        out, kept = copy.copy(data), keep.nonzero().view(-1)
        for key, value in data:
            if data.is_edge_attr(key):
                out[key] = take_rows(value, kept, data.__cat_dim__(key, value))
        out.edge_label_index = links
        return out

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(num_val={self.num_val}, num_test={self.num_test}, seed={self.seed})"


def unique_links(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The links of a graph, numbered by their smaller and larger node.

    Shapes:
        - **edge_index** (2, E)
        - **returns** the first edge of each link (M,), and each edge's link (E,), −1 for a self-loop
    """
    low, high = edge_index.amin(0), edge_index.amax(0)
    proper = (low != high).nonzero().view(-1)
    _, inverse = (low * num_nodes + high)[proper].unique(return_inverse=True)
    total = int(inverse.max()) + 1 if inverse.numel() else 0
    first = edge_index.new_full((total,), edge_index.size(1)).scatter_reduce(0, inverse, proper, "amin")
    return first, edge_index.new_full((edge_index.size(1),), -1).index_put((proper,), inverse)

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.transforms import BaseTransform

from pyg_textgraph.data import TextAttributedData, TokenStore
from pyg_textgraph.data.text_attributed_data import with_edge_index
from pyg_textgraph.sampling import CSRGraph, Egos, EgoTextDataset, ToTextGraphs, ego_graph, sample_egos
from pyg_textgraph.transforms._edges import read_edges
from pyg_textgraph.versions import version

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@functional_transform("ego_text_sampler")
class EgoTextSampler(BaseTransform, BaseSampler):
    r"""Samples the surroundings of a node as a text graph of its own (functional name: :obj:`ego_text_sampler`).

    An ego is the target, then up to ``num_neighbors`` other nodes within ``num_hops`` hops along edges of either
    direction, nearest first, ties uniformly at random without replacement; and all directed edges between them, in the
    order of the graph. It depends on the seed, the epoch and the target only.

    - As a transform, it replaces a graph by the ego of ``data.target``.
    - :meth:`dataset` is a map-style data set of tokenized egos for PyG's ``DataLoader``.
    - :meth:`bind` makes it the ``node_sampler`` of PyG's ``NodeLoader``: seeds come first, egos are disjoint, and
      :class:`~pyg_textgraph.sampling.ToTextGraphs` as the loader's ``transform`` turns them into text graphs. The
      loader's graph has to be a :class:`~pyg_textgraph.data.TextAttributedData`: PyG cannot index a list of texts.

    The sorted edges of the last graph seen are kept, so many egos of one graph cost one sort.

    Args:
        num_neighbors: The most nodes taken, the target not counted.
        num_hops: How far from the target they may be.
        seed: Of the ties.

    Shapes:
        - **data.n_id** (n,), **data.e_id** (m,) ids in the graph sampled from
        - **data.target** 0

    Raises:
        ValueError: If an argument is negative, or the graph has no ``target`` or one out of range.
    """

    def __init__(self, num_neighbors: int, num_hops: int = 2, seed: int = 0) -> None:
        for name, value in (("num_neighbors", num_neighbors), ("num_hops", num_hops)):
            if int(value) != value or value < 0:
                raise ValueError(f"EgoTextSampler: '{name}' is {value}, expected an integer of 0 or more")
        self.num_neighbors, self.num_hops, self.seed = int(num_neighbors), int(num_hops), seed
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()  # shared: reaches workers that already run
        self._seen: tuple[Any, ...] = (None,)  # what _graph was made of
        self._graph: CSRGraph | None = None

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Re-samples all egos; call it before a loader's next iteration starts. Reaches persistent workers too."""
        self._epoch.fill_(epoch)

    def bind(self, data: Data, graph: CSRGraph | None = None) -> Self:
        """A copy with its own epoch that samples from ``data``.

        Args:
            data: The big graph.
            graph: Its sorted edges, if they are there already: ``CSRGraph.load`` of what an earlier run saved.

        Raises:
            ValueError: If **graph** is of another size.
        """
        if graph is None:
            self._sort(data)
        elif (graph.num_nodes, graph.kept.size) != (data.num_nodes, data.num_edges):
            raise ValueError(
                f"EgoTextSampler: 'graph' has {graph.num_nodes} nodes and {graph.kept.size} edges but the data has "
                f"{data.num_nodes} and {data.num_edges}"
            )
        out = copy.copy(self)
        if graph is not None:
            out._graph, out._seen = graph, _version(data)
        out._epoch = self._epoch.clone().share_memory_()
        return out

    def sample(self, nodes: Tensor) -> Egos:
        """The egos of some nodes of the bound graph.

        Shapes:
            - **nodes** (B,)

        Raises:
            ValueError: If there is no graph.
        """
        if self._graph is None:
            raise ValueError("EgoTextSampler: there is no graph to sample from; use sampler.bind(data)")
        targets = nodes.cpu().numpy()
        return sample_egos(self._graph, targets, self.num_neighbors, self.num_hops, self.seed, self.epoch)

    def forward(self, data: Data) -> TextAttributedData:
        self._sort(data)
        if data.get("target") is None:
            raise ValueError("EgoTextSampler: the graph has no 'target'; set it to the node whose ego is wanted")
        target = torch.as_tensor(data.target).view(-1)
        if target.is_floating_point() or target.numel() != 1 or not 0 <= int(target) < data.num_nodes:
            raise ValueError(f"EgoTextSampler: 'target' is {target.tolist()}, expected a node in [0, {data.num_nodes})")
        return ego_graph(with_edge_index(data), *next(self.sample(target).split()))

    def dataset(
        self,
        data: Data,
        nodes: Tensor | Sequence[int],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        store: TokenStore | None = None,
        graph: CSRGraph | None = None,
        question: str | None = None,
        class_names: Sequence[str] | None = None,
        max_target_tokens: int | None = None,
        max_neighbor_tokens: int | None = None,
        empty: str = "error",
        transform: Callable[[Any], Any] | None = None,
    ) -> EgoTextDataset:
        """A data set of the ego text graphs of some nodes, with an epoch of its own.

        Args:
            data: The big graph, with ``text`` (unless **store** is given) and, for answers, ``y``.
            nodes: The targets, one per item; indices or a mask.
            graph: See :meth:`bind`.
            tokenizer: As all others: see :class:`~pyg_textgraph.sampling.ToTextGraphs`. Give a second data set of the
                same graph the first one's ``store`` and its texts are not tokenized again.
        """
        sampler = self.bind(data, graph)
        to_graphs = ToTextGraphs(
            data,
            tokenizer,
            store=store,
            question=question,
            class_names=class_names,
            max_target_tokens=max_target_tokens,
            max_neighbor_tokens=max_neighbor_tokens,
            empty=empty,
            transform=transform,
        )
        return EgoTextDataset(sampler, nodes, to_graphs)

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Disjoint egos as PyG lays them out: the seeds first, ``batch`` telling whose a node is."""
        egos = self.sample(index.node)
        first = np.diff(egos.ego, prepend=-1) > 0
        order = np.concatenate([np.flatnonzero(first), np.flatnonzero(~first)])
        place = np.argsort(order)
        node, ego, row, col, edge = map(
            torch.from_numpy, (egos.node[order], egos.ego[order], place[egos.row], place[egos.col], egos.edge)
        )
        return SamplerOutput(node, row, col, edge, batch=ego, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> NoReturn:
        raise NotImplementedError("EgoTextSampler samples around nodes, not edges; use NodeLoader")

    def _sort(self, data: Data) -> None:
        seen = _version(data) if isinstance(data, Data) else (None,)
        if self._graph is None or seen[0] is not self._seen[0] or seen[1:] != self._seen[1:]:
            edges = read_edges(data, "EgoTextSampler")
            self._graph, self._seen = CSRGraph.from_edge_index(edges.index, edges.num_nodes), seen

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.num_neighbors}, num_hops={self.num_hops}, seed={self.seed})"


def _version(data: Data) -> tuple[Any, int, int | None]:
    """A graph's edges, how often they were changed in place, and its number of nodes."""
    edges = data.get("edge_index", data.get("adj_t"))
    return edges, version(edges), data.num_nodes

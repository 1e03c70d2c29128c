"""The graph attention of GTLM as a layer for any PyG model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.transforms import Compose
from torch_geometric.typing import Adj
from torch_geometric.utils import is_sparse, to_edge_index

from pyg_textgraph.data import TokenLayout
from pyg_textgraph.nn.bias import Flow, GraphBias, GraphBiasConfig, PairFeatures, graph_ptr
from pyg_textgraph.ops import graph_attention
from pyg_textgraph.ops.graph_attention import Backend
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, k_hop_pairs


@dataclass(frozen=True)
class GraphStructure:
    """What graphs tell a :class:`GTLMConv`; shared by all layers with the same biases, ``k_hop`` and ``flow``.

    Shapes:
        - **pairs** (2, P) the nodes (query, key) that see each other, counted over the batch; None = all of a graph
        - **inputs** of the biases, see :meth:`~pyg_textgraph.nn.bias.GraphBias.prepare`
    """

    layout: TokenLayout
    pairs: Tensor | None
    inputs: dict[str, Any]


class GTLMConv(nn.Module):
    r"""The graph attention of the graph transformer language model (GTLM, arXiv 2605.10247) on node features.

    .. math::
        \mathbf{x}^{\prime}_v = \sum_{u \in \mathcal{N}_k(v) \cup \{v\}} \mathrm{softmax}_u \left(
        \frac{(\mathbf{W}_q \mathbf{x}_v)^{\top} \mathbf{W}_k \mathbf{x}_u}{\sqrt{d}} + b(u, v) \right)
        \mathbf{W}_v \mathbf{x}_u

    The bias :math:`b(u, v)` of every head is learned from the paths from :math:`u` to :math:`v`, starts at zero and is
    zero for :math:`u = v`. :math:`\mathcal{N}_k(v)` are the nodes that reach :math:`v` over at most :math:`k` edges;
    only those pairs are ever computed.

    A node may also have several tokens: with **num_tokens** or a **layout**, rows of ``x`` are tokens, and tokens see
    those of their own node and of the nodes in :math:`\mathcal{N}_k(v)`.

    Args:
        in_channels: Size of each input sample, or -1 to derive it from the first input.
        out_channels: Size of each head's output :math:`d`.
        heads: Number of attention heads.
        concat: Whether heads are concatenated; otherwise averaged.
        dropout: Probability that a head does not see a pair of different nodes during training.
        bias: Whether the projections have an additive bias.
        k_hop: How many edges away nodes are seen; None shows each node all of its graph, in dense form.
        biases: Any of ``"spd"``, ``"rrwp"`` and ``"magnetic"``.
        flow: ``"source_to_target"``: a node sees where its incoming edges come from, as in PyG's own layers;
            ``"target_to_source"``: where its outgoing edges go, as in :class:`~pyg_textgraph.nn.GTLM`.
        cached: Whether the first graph's structure is kept for all further calls, for transductive learning.
        backend: See :func:`~pyg_textgraph.ops.graph_attention`.
        **kwargs: Sizes of the biases (``walk_length``, ``max_dist``, …), see
            :class:`~pyg_textgraph.nn.bias.GraphBiasConfig`.

    Example:
        >>> conv = GTLMConv(dataset.num_features, 8, heads=8)
        >>> out = conv(data.x, data.edge_index)  # [N, 64]
        >>> out = conv(batch.x, batch.edge_index, batch.batch)
        >>> graph = conv.structure(batch.edge_index, features=batch)  # of AddRRWP(16, k_hop=1), in the DataLoader
        >>> out = conv2(conv(batch.x, graph), graph)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        k_hop: int | None = 1,
        biases: Sequence[str] = ("rrwp",),
        flow: Flow = "source_to_target",
        cached: bool = False,
        backend: Backend = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if kwargs.get("bias_groups") is not None:
            raise ValueError(f"GTLMConv: 'bias_groups' is {kwargs['bias_groups']}, expected none: there is one layer")
        if k_hop is not None and k_hop < 0:
            raise ValueError(f"GTLMConv: 'k_hop' is {k_hop}, expected None or at least 0")
        if not 0 <= dropout < 1:
            raise ValueError(f"GTLMConv: 'dropout' is {dropout}, expected a probability below 1")
        if flow not in get_args(Flow):
            raise ValueError(f"GTLMConv: 'flow' is {flow!r}, expected one of {get_args(Flow)}")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.dropout, self.k_hop, self.flow = concat, dropout, k_hop, flow
        self.cached, self.backend = cached, backend
        self.lin_query = Linear(in_channels, heads * out_channels, bias=bias, weight_initializer="glorot")
        self.lin_key = Linear(in_channels, heads * out_channels, bias=bias, weight_initializer="glorot")
        self.lin_value = Linear(in_channels, heads * out_channels, bias=bias, weight_initializer="glorot")
        self.graph_bias = GraphBias(1, heads, GraphBiasConfig(biases=tuple(biases), **kwargs))
        self._cached: GraphStructure | None = None

    def reset_parameters(self) -> None:
        for module in (self.lin_query, self.lin_key, self.lin_value, self.graph_bias):
            module.reset_parameters()
        self._cached = None

    def forward(
        self,
        x: Tensor,
        edge_index: Adj | GraphStructure,
        batch: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        num_tokens: Tensor | None = None,
        layout: TokenLayout | None = None,
        features: Data | None = None,
    ) -> Tensor:
        """Runs the layer; arguments besides ``x`` as :meth:`structure`, whose result may stand for ``edge_index``.

        Shapes:
            - **x** (N, F), or (T, F) with **num_tokens** or **layout**
            - **returns** (N, H·d) or (T, H·d); d instead of H·d without ``concat``

        Raises:
            ValueError: If ``x`` does not have one row per node (per token), or as :meth:`structure`.
        """
        graph = edge_index if isinstance(edge_index, GraphStructure) else self._cached
        if graph is None:
            one_per_node = num_tokens is None and layout is None
            graph = self.structure(
                edge_index, batch, num_nodes=x.size(0) if one_per_node else None,
                edge_weight=edge_weight, num_tokens=num_tokens, layout=layout, features=features,
            )  # fmt: skip
            if self.cached:
                self._cached = graph
        if x.dim() != 2 or x.size(0) != graph.layout.num_tokens:
            raise ValueError(f"GTLMConv: 'x' has shape {tuple(x.shape)}, expected ({graph.layout.num_tokens}, F)")
        shape = (-1, self.heads, self.out_channels)
        q, k, v = (lin(x).view(shape) for lin in (self.lin_query, self.lin_key, self.lin_value))
        bias = self._drop(self.graph_bias(0, graph.inputs), graph)
        out = graph_attention(q, k, v, graph.layout, bias, pairs=graph.pairs, backend=self.backend)
        return out.flatten(1) if self.concat else out.mean(1)

    def structure(
        self,
        edge_index: Adj,
        batch: Tensor | None = None,
        *,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        num_tokens: Tensor | None = None,
        layout: TokenLayout | None = None,
        features: Data | None = None,
    ) -> GraphStructure:
        """Who sees whom, and what the biases read: computed once for several layers.

        Args:
            edge_index: Edges, or a transposed sparse adjacency matrix as from ``T.ToSparseTensor()``.
            batch: The graph of each node, ascending; one graph if left out.
            num_nodes: Number of nodes, where nothing else tells.
            edge_weight: Non-negative weights of random walks and of the magnetic Laplacian.
            num_tokens: Tokens per node; the rows of ``x`` are then tokens, node after node.
            layout: The same in packed order, with a mode.
            features: The graph (or PyG batch, which then tells ``batch`` too) with what
                :class:`~pyg_textgraph.transforms.AddSPD`, :class:`~pyg_textgraph.transforms.AddRRWP` and
                :class:`~pyg_textgraph.transforms.AddMagneticLaplacian` stored: of all pairs, or with at least this
                layer's ``k_hop``. Computed here if left out.

        Shapes:
            - **edge_index** (2, E); **batch**, **num_tokens** (N,); **edge_weight** (E,)

        Raises:
            ValueError: If arguments do not fit each other, or ``features`` lacks what a bias needs.
        """
        if is_sparse(edge_index):
            edge_index, value = to_edge_index(edge_index)
            edge_index, edge_weight = edge_index.flip(0), value if edge_weight is None else edge_weight
        if layout is None:
            layout = _layout(batch, num_nodes, num_tokens, features, edge_index.device)
        _check_edges(edge_index, layout.num_nodes)
        config = self.graph_bias.config
        pairs = None
        if self.k_hop is not None:
            pairs = k_hop_pairs(edge_index, int(layout.num_nodes.sum()), self.k_hop, directed=True)
            pairs = pairs.flip(0) if self.flow == "source_to_target" else pairs
        if not config.biases:
            return GraphStructure(layout, pairs, {})
        if features is None:
            features = self._features(edge_index, edge_weight, layout.num_nodes)
        elif not torch.equal(graph_ptr(features).diff(), layout.num_nodes):
            got, expected = graph_ptr(features).diff().tolist(), layout.num_nodes.tolist()
            raise ValueError(f"GTLMConv: 'features' has graphs of {got} nodes, expected {expected}")
        dtype = next(self.graph_bias.parameters()).dtype
        read = PairFeatures.from_batch(features, config.biases, dtype, pairs=pairs, flow=self.flow)
        return GraphStructure(layout, pairs, self.graph_bias.prepare(read))

    def _features(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: Tensor) -> Data:
        """Applies the transforms to each graph of a batch."""
        config, weighted = self.graph_bias.config, edge_weight is not None
        make = {
            "spd": AddSPD(config.max_dist, k_hop=self.k_hop),
            "rrwp": AddRRWP(config.walk_length, weighted=weighted, k_hop=self.k_hop),
            "magnetic": AddMagneticLaplacian(weighted=weighted),
        }
        transform = Compose([make[name] for name in config.biases])
        graph = torch.repeat_interleave(num_nodes)[edge_index[0]]  # [E]
        order, count = graph.argsort(stable=True), torch.bincount(graph, minlength=num_nodes.numel())
        start = num_nodes.cumsum(0) - num_nodes
        edges = (edge_index - start[graph])[:, order].split(count.tolist(), dim=1)
        weights = [None] * len(edges) if edge_weight is None else edge_weight[order].split(count.tolist())
        parts = zip(edges, weights, num_nodes.tolist(), strict=True)
        return Batch.from_data_list([transform(Data(edge_index=e, edge_weight=w, num_nodes=n)) for e, w, n in parts])

    def _drop(self, bias: Tensor | None, graph: GraphStructure) -> Tensor | None:
        """Hides random pairs from random heads, before the softmax: the rest is normalized again."""
        if not self.training or self.dropout == 0:
            return bias
        if bias is None and graph.pairs is not None:
            bias = self.lin_query.weight.new_zeros(self.heads, graph.pairs.size(1))
        elif bias is None:
            nodes = graph.layout.most_nodes
            bias = self.lin_query.weight.new_zeros(graph.layout.num_graphs, self.heads, nodes, nodes)
        return bias.masked_fill(torch.rand_like(bias) < self.dropout, -torch.inf)

    def __repr__(self) -> str:
        biases = ", ".join(self.graph_bias.config.biases) or "none"
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads}, "
            f"k_hop={self.k_hop}, biases={biases})"
        )


def _layout(
    batch: Tensor | None, num_nodes: int | None, num_tokens: Tensor | None, features: Data | None, device: torch.device
) -> TokenLayout:
    """The layout of tokens that stand node after node; one per node unless ``num_tokens`` says otherwise."""
    if num_nodes is None:
        known = (x.numel() for x in (num_tokens, batch) if x is not None)
        num_nodes = next(known, None if features is None else features.num_nodes)
    if num_nodes is None:
        raise ValueError("GTLMConv: the number of nodes is unknown; pass num_nodes=")
    if num_tokens is None:
        num_tokens = torch.ones(num_nodes, dtype=torch.long, device=device)
    if features is not None and "ptr" in features:
        ptr = features.ptr
    elif batch is None or batch.numel() == 0:
        ptr = torch.tensor([0, num_nodes], device=device)
    else:
        if bool((batch.diff() < 0).any()):
            raise ValueError("GTLMConv: 'batch' is not ascending; the nodes of a graph must stand together")
        size = torch.bincount(batch)
        ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    if int(ptr[-1]) != num_nodes or num_tokens.shape != (num_nodes,):
        raise ValueError(
            f"GTLMConv: the batch has {int(ptr[-1])} nodes and 'num_tokens' shape {tuple(num_tokens.shape)}, expected "
            f"{num_nodes}, one per row of 'x' unless tokens are given"
        )
    return TokenLayout.from_data(Data(num_tokens=num_tokens, ptr=ptr, num_nodes=num_nodes), mode="full")


def _check_edges(edge_index: Tensor, num_nodes: Tensor) -> None:
    if edge_index.dtype != torch.long or edge_index.dim() != 2 or edge_index.size(0) != 2:
        got = f"{edge_index.dtype} of shape {tuple(edge_index.shape)}"
        raise ValueError(f"GTLMConv: 'edge_index' is {got}, expected int64 (2, E)")
    total = int(num_nodes.sum())
    wrong = edge_index[(edge_index < 0) | (edge_index >= total)]
    if wrong.numel():
        raise ValueError(f"GTLMConv: 'edge_index' holds node {int(wrong[0])} but there are {total} nodes")
    graph = torch.repeat_interleave(num_nodes)[edge_index]
    if bool((graph[0] != graph[1]).any()):
        raise ValueError("GTLMConv: 'edge_index' joins nodes of two graphs of 'batch'")

"""Random and broken graphs: a right result or an error that names the class and the argument."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch_geometric.data import Batch, Data
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import TextAttributedData, TokenLayout, TokenStore, graph_text, linearize, tokenize
from pyg_textgraph.data.graph_templates import NODE_CLASS
from pyg_textgraph.ops import graph_attention, sparsify
from pyg_textgraph.sampling import CSRGraph, sample_egos
from pyg_textgraph.transforms import (
    AddMagneticLaplacian,
    AddRRWP,
    AddSPD,
    EgoTextSampler,
    IncidenceGraph,
    k_hop_pairs,
)

# HARD_INPUT_EXAMPLES=10000 is the long run
EXAMPLES = int(os.environ.get("HARD_INPUT_EXAMPLES", "300"))
MANY = settings(max_examples=EXAMPLES, derandomize=True, deadline=None)
EDGES = torch.tensor([[0, 1], [1, 2]])
NASTY = ["\u202eright to left", "\u200b", "👩‍👩‍👧", "\x00", "e\u0301", "a" * 20_000, "\n", "\uffff"]


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 9) -> Data:
    """Self-loops, parallel edges, hubs, isolated nodes, no nodes at all, strided tensors, odd weights."""
    n = draw(st.integers(0, max_nodes))
    node = st.integers(0, max(n - 1, 0)) | st.just(0)  # node 0 is a hub
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n)) if n else []
    index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T  # not contiguous
    weight = draw(st.lists(st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 1e300]), min_size=len(edges), max_size=len(edges)))
    return Data(edge_index=index, num_nodes=n, edge_weight=torch.tensor(weight, dtype=torch.float64))


def dense(data: Data) -> np.ndarray[Any, Any]:
    out = np.zeros((data.num_nodes, data.num_nodes))
    out[tuple(data.edge_index.numpy())] = 1
    np.fill_diagonal(out, 0)
    return out


@MANY
@given(graphs())
def test_features_of_any_graph(data: Data) -> None:
    n, before = data.num_nodes, data.edge_index.clone()
    spd = AddSPD(3)(data.clone()).spd.view(n, n).numpy()
    hops = shortest_path(dense(data), unweighted=True) if n else np.zeros((0, 0))
    assert (spd == np.where(np.isinf(hops), -1, np.minimum(hops, 3))).all()
    for weighted in (False, True):
        walks = AddRRWP(4, weighted=weighted)(data.clone()).rrwp.view(n, n, 4)
        torch.testing.assert_close(walks.sum(1), torch.ones(n, 4))
        magnetic = AddMagneticLaplacian(weighted=weighted)(data.clone())
        values = magnetic.magnetic_eigvals
        assert bool(((values > -1e-5) & (values < 2 + 1e-5)).all())
        vectors = magnetic.magnetic_eigvecs.view(n, n)
        torch.testing.assert_close(vectors @ vectors.mH, torch.eye(n, dtype=vectors.dtype), atol=1e-5, rtol=0)
    assert torch.equal(data.edge_index, before)
    assert IncidenceGraph()(data.clone()).num_nodes >= n


@MANY
@given(graphs(), st.integers(0, 3))
def test_listed_pairs_are_those_within_k_hops(data: Data, k: int) -> None:
    n, both = data.num_nodes, dense(data)
    hops = shortest_path(both + both.T, unweighted=True) if n else np.zeros((0, 0))
    expected = np.argwhere((hops <= k) & ~np.eye(n, dtype=bool)).T.reshape(2, -1)
    assert k_hop_pairs(data.edge_index, n, k).tolist() == expected.tolist()


@MANY
@given(graphs(), st.integers(0, 12) | st.just(2**62), st.integers(0, 4) | st.just(10**6), st.data())
def test_egos_of_any_graph(data: Data, num_neighbors: int, num_hops: int, draw: st.DataObject) -> None:
    n, both = data.num_nodes, dense(data)
    graph = CSRGraph.from_edge_index(data.edge_index.numpy(), n)
    targets = np.array(draw.draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else [], dtype=np.int64)
    found = list(sample_egos(graph, targets, num_neighbors, num_hops).split())
    hops = shortest_path(both + both.T, unweighted=True) if n else np.zeros((0, 0))
    assert len(found) == len(targets)
    for target, (node, index, edge) in zip(targets, found, strict=True):
        within = np.sort(hops[target][hops[target] <= num_hops])
        size = min(len(within), num_neighbors + 1)
        assert node[0] == target
        assert len(set(node.tolist())) == len(node)
        assert hops[target][node].tolist() == within[:size].tolist()  # the nearest, nearest first
        inside = np.isin(data.edge_index.numpy(), node).all(0)
        assert edge.tolist() == np.flatnonzero(inside).tolist()
        assert np.array_equal(node[index], data.edge_index.numpy()[:, edge])


@MANY
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=3), st.data())
def test_packing_any_batch(counts: list[list[int]], draw: st.DataObject) -> None:
    graphs, targets = [], []
    for count in counts:
        targets.append(draw.draw(st.integers(0, len(count) - 1)))
        graphs.append(TextAttributedData(edge_index=EDGES[:, :0], input_ids=torch.arange(sum(count)),
                                         num_tokens=torch.tensor(count), target=targets[-1]))  # fmt: skip
    layout = TokenLayout.from_data(Batch.from_data_list(graphs))
    assert sorted(layout.order.tolist()) == list(range(layout.num_tokens))
    for g, (count, target) in enumerate(zip(counts, targets, strict=True)):
        part = slice(int(layout.graph_ptr[g]), int(layout.graph_ptr[g + 1]))
        nodes = [v for v in sorted(range(len(count)), key=lambda v: v == target) for _ in range(count[v])]
        assert layout.node[part].tolist() == nodes
    q = torch.randn(layout.num_tokens, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(graph_attention(q, q, q, layout, backend="blocked"),
                               graph_attention(q, q, q, layout, backend="reference"))  # fmt: skip


@settings(MANY, max_examples=max(EXAMPLES // 3, 1))
@given(text=st.lists(st.text(max_size=12) | st.sampled_from(NASTY), min_size=3, max_size=3))
def test_any_text_goes_through_or_is_named(tokenizer: PreTrainedTokenizerFast, text: list[str]) -> None:
    data = Data(text=text, edge_index=EDGES, num_nodes=3)
    surrogate = any("\ud800" <= letter <= "\udfff" for letter in "".join(text))
    if surrogate:
        with pytest.raises(ValueError, match="lone surrogate"):
            tokenize(data, tokenizer, empty="-")
        with pytest.raises(ValueError, match="lone surrogate"):
            linearize(data, tokenizer, NODE_CLASS)
        return
    out = tokenize(data, tokenizer, empty="-")
    assert bool((out.num_tokens > 0).all())
    prompt = linearize(data, tokenizer, NODE_CLASS)
    for v, (start, end) in enumerate(prompt.block.tolist()):
        assert text[v].strip() in prompt.text[start:end]
        assert bool((prompt.node == v).any())


# powers of two: their sums are exact, in whatever order, so that ties stay ties
@MANY
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 2.0**-27, 0.5, 1.0])), min_size=1, max_size=9),
       st.integers(1, 12))  # fmt: skip
def test_sparsify_of_any_list(members: list[tuple[int, float]], s: int) -> None:
    index, weight = torch.tensor([i for i, _ in members]), torch.tensor([w for _, w in members], dtype=torch.float64)
    blocked, reference = (sparsify(index, weight, s, backend=b) for b in ("blocked", "reference"))
    assert torch.equal(blocked[0].long(), reference[0].long())
    torch.testing.assert_close(blocked[1], reference[1])


def bad(**changes: object) -> Data:
    return Data(**({"edge_index": EDGES, "num_nodes": 3, "target": 0} | changes))


TRANSFORMS = [AddSPD(), AddRRWP(), AddMagneticLaplacian(), IncidenceGraph(), EgoTextSampler(2)]
BROKEN: list[tuple[dict[str, object], str]] = [
    ({"edge_index": EDGES.int()}, "'edge_index' must be torch.int64"),
    ({"edge_index": EDGES.float()}, "'edge_index' must be torch.int64"),
    ({"edge_index": EDGES[0]}, "'edge_index' must be torch.int64"),
    ({"edge_index": [[0], [1]]}, "got list"),
    ({"edge_index": torch.eye(2).long().to_sparse()}, "must be a dense tensor"),
    ({"edge_index": EDGES.to("meta")}, "meta device"),
    ({"edge_index": EDGES + 1}, "holds node 3 but the graph has 3 nodes"),
    ({"edge_index": EDGES - 1}, "holds node -1"),
    ({"edge_index": EDGES[:, :0], "num_nodes": -1}, "'num_nodes' is -1"),
    ({"edge_index": EDGES[:, :0], "num_nodes": 2.5}, "'num_nodes' is 2.5"),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize(("changes", "message"), BROKEN)
def test_broken_graphs_are_named(transform: Callable[[Data], Data], changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=rf"{type(transform).__name__}: .*{message}"):
        transform(bad(**changes))


@pytest.mark.parametrize("transform", [AddRRWP(weighted=True), AddMagneticLaplacian(weighted=True)])
@pytest.mark.parametrize(
    "weight", [[float("nan"), 1], [float("inf"), 1], [-1.0, 1], [1.7e308, 1.7e308], [1j, 1], [1.0]]
)
def test_broken_weights_are_named(transform: Callable[[Data], Data], weight: list[complex]) -> None:
    dtype = torch.complex64 if 1j in weight else torch.float64
    with pytest.raises(ValueError, match=rf"{type(transform).__name__}: .*weight"):
        transform(bad(edge_weight=torch.tensor(weight, dtype=dtype)))


@pytest.mark.parametrize("transform", TRANSFORMS[:3], ids=lambda t: type(t).__name__)
def test_more_pairs_than_memory_are_refused_before_allocating(transform: Callable[[Data], Data]) -> None:
    with pytest.raises(MemoryError, match=rf"{type(transform).__name__}: all pairs of 9000000 nodes need .* GiB"):
        transform(bad(num_nodes=9_000_000))


def layout_of(**changes: Any) -> TokenLayout:
    fields: dict[str, Any] = {"edge_index": EDGES, "input_ids": torch.arange(5), "num_tokens": torch.tensor([2, 0, 3])}
    return TokenLayout.from_data(TextAttributedData(**(fields | changes)))


def store(ids: Tensor | None = None, count: Tensor | None = None) -> TokenStore:
    return TokenStore(torch.arange(5) if ids is None else ids, torch.tensor([2, 0, 3]) if count is None else count)


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: layout_of(num_tokens=torch.tensor([2.0, 0, 3])), "TokenLayout: 'num_tokens' is torch.float32"),
    (lambda: layout_of(num_tokens=torch.tensor([-2, 4, 3])), "TokenLayout: 'num_tokens'"),
    (lambda: layout_of(num_nodes=4), "TokenLayout: 'num_tokens'"),
    (lambda: layout_of(input_ids=torch.arange(4)), "TokenLayout: 'input_ids'"),
    (lambda: layout_of(target=-1), "TokenLayout: 'target'"),
    (lambda: layout_of(target=3), "TokenLayout: 'target'"),
    (lambda: store(ids=torch.tensor([2**31, 0, 0, 0, 0])), "TokenStore: 'ids' holds 2147483648"),
    (lambda: store(ids=torch.tensor([-1, 0, 0, 0, 0])), "TokenStore: 'ids' holds -1"),
    (lambda: store(ids=torch.ones(5)), "TokenStore: 'ids' is torch.float32"),
    (lambda: store(count=torch.tensor([[2, 3]])), "TokenStore: 'num_tokens'"),
    (lambda: store().gather(torch.tensor([0.0])), "TokenStore: 'nodes'"),
    (lambda: store().gather(torch.tensor([True])), "TokenStore: 'nodes'"),
    (lambda: store().gather(torch.tensor([0]), 5), "TokenStore: 'target'"),
    (lambda: store().gather(torch.tensor([0]), -1), "TokenStore: 'target'"),
    (lambda: CSRGraph.from_edge_index(np.array([[0], [-1]]), 3), "CSRGraph: 'edge_index' holds node -1"),
    (lambda: CSRGraph.from_edge_index(np.array([[0.0], [1.0]]), 3), "CSRGraph: 'edge_index' is float64"),
    (lambda: k_hop_pairs(torch.tensor([[0], [3]]), 3, 1), "k_hop_pairs: 'edge_index' holds node 3"),
    (lambda: k_hop_pairs(EDGES.float(), 3, 1), "k_hop_pairs: 'edge_index' is torch.float32"),
    (lambda: graph_text(bad(edge_index=EDGES + 1, text=list("abc")), NODE_CLASS), "linearize: 'edge_index' holds"),
    (
        lambda: graph_text(bad(edge_index=None, text=list("abc")), NODE_CLASS),
        "linearize: the graph has no 'edge_index'",
    ),
    (lambda: graph_text(bad(text=list("abc")), NODE_CLASS, max_words=-1), "linearize: 'max_words' is -1"),
    (lambda: EgoTextSampler(2)(bad(target=torch.tensor([1.5]))), "EgoTextSampler: 'target'"),
    (lambda: EgoTextSampler(1.5), "EgoTextSampler: 'num_neighbors' is 1.5"),  # type: ignore[arg-type]
    (lambda: TextAttributedData(edge_index=[[0]], num_nodes=1).validate(), "'edge_index' is a list"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message for _, message in CALLS])
def test_broken_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()

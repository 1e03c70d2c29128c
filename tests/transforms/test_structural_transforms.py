"""What all structural transforms have in common: inputs, containers, errors."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data.datapipes.iter import IterableWrapper
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.typing import SparseTensor

from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, IncidenceGraph
from tests.transforms.transform_graphs import graph

MAGNETIC = ("magnetic_eigvals", "magnetic_eigvecs", "magnetic_num_eigvals")
PAIRWISE = [AddSPD(), AddRRWP(5), AddMagneticLaplacian()]
WEIGHTED = [AddRRWP(5, weighted=True), AddMagneticLaplacian(weighted=True)]
LISTED = [AddSPD(k_hop=1), AddRRWP(5, k_hop=1)]
ALL = [*PAIRWISE, *LISTED, IncidenceGraph()]


def name(transform: T.BaseTransform) -> str:
    return repr(transform)


def results(data: Data) -> dict[str, Tensor]:
    keys = ("spd", "rrwp", *MAGNETIC, "pair_index")
    return {key: data[key] for key in keys if key in data}


def typical() -> Data:
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 2), (4, 4), (0, 1), (5, 3)]
    return graph(7, edges, [1, 2, 0.5, 3, 0.25, 1, 4, 0])


@pytest.mark.parametrize("transform", ALL, ids=name)
@pytest.mark.parametrize("edges", [[], [(0, 0)]], ids=["no edges", "self-loop"])
@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_tiny_graphs(transform: T.BaseTransform, num_nodes: int, edges: list) -> None:
    edges = edges if num_nodes else []
    out = transform(graph(num_nodes, edges))
    assert out.num_nodes == num_nodes
    eye = torch.eye(num_nodes).flatten()
    listed = getattr(transform, "k_hop", None) is not None
    if isinstance(transform, AddSPD):
        assert torch.equal(out.spd, (eye - 1 if not listed else eye[:0]).short())
    elif isinstance(transform, AddRRWP):
        assert torch.equal(out.rrwp, (eye if not listed else eye[:0])[:, None].expand(-1, 5))
    elif isinstance(transform, AddMagneticLaplacian):
        assert torch.equal(out.magnetic_eigvals, torch.ones(num_nodes))
        assert out.magnetic_eigvecs.shape == (num_nodes**2,)
        assert out.magnetic_num_eigvals.tolist() == [num_nodes]
    else:
        assert out.edge_index.shape == (2, 0)


@pytest.mark.parametrize("transform", [*PAIRWISE, *WEIGHTED, *LISTED], ids=name)
@pytest.mark.parametrize("layout", [None, torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse_tensors(transform: T.BaseTransform, layout: torch.layout | None) -> None:
    expected = results(transform(typical()))
    sparse = T.ToSparseTensor(layout=layout)(typical())
    assert "edge_index" not in sparse
    assert_close(results(transform(sparse)), expected)


def test_torch_sparse_tensors() -> None:
    class Installed(SparseTensor):  # stands in for torch_sparse, which is optional
        def __init__(self, row: Tensor, col: Tensor, value: Tensor) -> None:
            self.coo = lambda: (row, col, value)

    data = typical()
    source, target = data.edge_index
    sparse = Data(adj_t=Installed(target, source, data.edge_weight), num_nodes=7)
    assert_close(AddRRWP(weighted=True)(sparse).rrwp, AddRRWP(weighted=True)(data).rrwp)


def test_uncoalesced_sparse_tensors_are_left_alone() -> None:
    adj_t = torch.sparse_coo_tensor(torch.tensor([[1, 1, 2], [0, 0, 0]]), torch.tensor([1.0, 2.0, 1.0]), (3, 3))
    out = AddRRWP(2, weighted=True)(Data(adj_t=adj_t))
    assert out.rrwp.view(3, 3, 2)[0, :, 1].tolist() == [0, 0.75, 0.25]
    assert not adj_t.is_coalesced()


def test_sparse_tensor_without_the_weights() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([2.0, 3.0]), num_nodes=2)
    with pytest.raises(ValueError, match="'adj_t' has no weights but 'edge_attr' may"):
        AddRRWP(weighted=True)(T.ToSparseTensor()(data))
    out = AddRRWP(2, weighted=True)(T.ToSparseTensor(attr="edge_attr")(data))
    assert out.rrwp.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    data.edge_index, data.edge_attr = data.edge_index[:, :0], data.edge_attr[:0]
    assert AddRRWP(2, weighted=True)(T.ToSparseTensor()(data)).rrwp.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("transform", WEIGHTED, ids=name)
def test_where_weights_come_from(transform: T.BaseTransform) -> None:
    data = typical()
    expected = results(transform(data))
    attr = Data(edge_index=data.edge_index, edge_attr=data.edge_weight[:, None], num_nodes=7)
    assert_close(results(transform(attr)), expected)
    attr.edge_weight, attr.edge_attr = data.edge_weight, torch.ones(8)
    assert_close(results(transform(attr)), expected)  # edge_weight goes first
    integers = Data(edge_index=data.edge_index, edge_attr=(data.edge_weight * 4).long(), num_nodes=7)
    assert_close(AddRRWP(5, weighted=True)(integers).rrwp, AddRRWP(5, weighted=True)(data).rrwp)


@pytest.mark.parametrize("transform", ALL, ids=name)
def test_input_is_not_modified(transform: T.BaseTransform) -> None:
    data = typical()
    before = copy.deepcopy(data)
    transform(data)
    assert set(data.keys()) == set(before.keys())
    assert all(torch.equal(data[key], before[key]) for key in ("edge_index", "edge_weight"))


@pytest.mark.parametrize("transform", PAIRWISE, ids=name)
def test_edge_index_class_and_inferred_nodes(transform: T.BaseTransform) -> None:
    data = typical()
    expected = results(transform(data))
    assert_close(results(transform(Data(edge_index=EdgeIndex(data.edge_index, sparse_size=(7, 7))))), expected)
    assert_close(results(transform(Data(edge_index=data.edge_index, x=torch.zeros(7, 2)))), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyG warns where it has to guess
        guessed = transform(Data(edge_index=data.edge_index))
    assert_close(results(guessed), results(transform(graph(6, data.edge_index.T.tolist()))))


def test_batch_and_separate() -> None:
    transform = T.Compose(PAIRWISE)
    complete = [(u, v) for u in range(2) for v in range(2)]  # E = N²
    sizes = [(1, []), (2, complete), (0, []), (3, [(0, 1), (1, 2)]), (1, [(0, 0)])]
    graphs = [transform(graph(n, edges)) for n, edges in sizes]
    batch = Batch.from_data_list(graphs)
    assert batch.spd.shape == (15,)
    assert batch.rrwp.shape == (15, 5)
    assert batch.magnetic_num_eigvals.tolist() == [1, 2, 0, 3, 1]
    assert batch.magnetic_eigvecs.shape == (15,)
    for i, (before, after) in enumerate(zip(graphs, batch.to_data_list(), strict=True)):
        assert results(before).keys() == results(after).keys() == {"spd", "rrwp", *MAGNETIC}
        for key, value in results(before).items():
            assert torch.equal(after[key], value), key
            assert torch.equal(batch[i][key], value), key


def test_data_loader_workers() -> None:
    class Egos(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> Data:
            return T.Compose(PAIRWISE)(graph(i + 1, [(u, u + 1) for u in range(i)]))

    expected, actual = (list(DataLoader(Egos(), batch_size=3, num_workers=workers)) for workers in (0, 2))
    assert len(actual) == 2
    for a, b in zip(expected, actual, strict=True):
        assert_close(results(b), results(a))


@pytest.mark.parametrize(
    ("functional", "transform"),
    [
        ("add_spd", AddSPD()),
        ("add_rrwp", AddRRWP()),
        ("add_magnetic_laplacian", AddMagneticLaplacian()),
        ("incidence_graph", IncidenceGraph()),
    ],
)
def test_functional_names(functional: str, transform: T.BaseTransform) -> None:
    (piped,) = getattr(IterableWrapper([typical()]), functional)()
    expected = transform(typical())
    assert_close(results(piped), results(expected))
    assert torch.equal(piped.edge_index, expected.edge_index)


def test_repr() -> None:
    assert [repr(transform) for transform in (*PAIRWISE, *LISTED, IncidenceGraph(False))] == [
        "AddSPD(8, directed=True, k_hop=None)",
        "AddRRWP(5, weighted=False, k_hop=None)",
        "AddMagneticLaplacian(q=0.25, num_eigvecs=None, weighted=False, convention='paper')",
        "AddSPD(8, directed=True, k_hop=1)",
        "AddRRWP(5, weighted=False, k_hop=1)",
        "IncidenceGraph(merge_reciprocal=False)",
    ]


def edges_of(index: Any, num_nodes: int | None = 5, **kwargs: Any) -> Data:
    return Data(edge_index=torch.as_tensor(index), num_nodes=num_nodes, **kwargs)


@pytest.mark.parametrize("transform", ALL, ids=name)
@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (HeteroData(), TypeError, "expected a homogeneous 'Data', got 'HeteroData'"),
        (Batch.from_data_list([graph(2, [(0, 1)])]), TypeError, "before batching"),
        (Data(num_nodes=3), ValueError, "neither 'edge_index' nor 'adj_t'"),
        (edges_of([[0, 7], [1, 1]]), ValueError, "'edge_index' holds node 7 but the graph has 5 nodes"),
        (edges_of([[0, 1], [-1, 1]]), ValueError, "'edge_index' holds node -1 but the graph has 5 nodes"),
        (edges_of([[0.0], [1.0]]), ValueError, r"must be torch.int64 of shape \(2, num_edges\), got torch.float32"),
        (edges_of([0, 1]), ValueError, r"must be torch.int64 .* got torch.int64 of shape \(2,\)"),
    ],
    ids=["hetero", "batch", "no edges", "too large", "negative", "dtype", "shape"],
)
def test_bad_graphs(transform: T.BaseTransform, data: Data, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{transform.__class__.__name__}: .*{message}"):
        transform(data)


@pytest.mark.parametrize("transform", WEIGHTED, ids=name)
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "weighted=True needs 'edge_weight' or 'edge_attr' with one number per edge"),
        ({"edge_attr": torch.ones(2, 3)}, "weighted=True needs 'edge_weight' or 'edge_attr' with one number per edge"),
        ({"edge_weight": torch.ones(3)}, r"one weight for each of the 2 edges, got shape \(3,\)"),
        ({"edge_weight": torch.tensor([1.0, -2.0])}, "finite and non-negative, got -2.0"),
        ({"edge_attr": torch.tensor([1.0, torch.nan])}, "finite and non-negative, got nan"),
        ({"edge_attr": torch.tensor([1.0, torch.inf])}, "finite and non-negative, got inf"),
    ],
)
def test_bad_weights(transform: T.BaseTransform, attributes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{transform.__class__.__name__}: .*{message}"):
        transform(edges_of([[0, 1], [1, 2]], **attributes))


@pytest.mark.parametrize("transform", PAIRWISE, ids=name)
def test_weights_do_not_matter_unless_asked_for(transform: T.BaseTransform) -> None:
    data = edges_of([[0, 1], [1, 2]], edge_weight=torch.tensor([torch.nan, -1.0]))
    assert_close(results(transform(data)), results(transform(edges_of([[0, 1], [1, 2]]))))


@pytest.mark.parametrize("transform", [AddSPD, AddRRWP])
@pytest.mark.parametrize(("key", "word"), [("node_spd", "node"), ("spd_index", "index"), ("batched", "batch")])
def test_names_that_pyg_gives_a_meaning(transform: type, key: str, word: str) -> None:
    with pytest.raises(ValueError, match=f"attr_name '{key}' contains '{word}'"):
        transform(attr_name=key)

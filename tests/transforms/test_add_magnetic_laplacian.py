import cmath
import math
from random import Random

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx

from pyg_textgraph.transforms import AddMagneticLaplacian
from pyg_textgraph.transforms.add_magnetic_laplacian import magnetic_laplacian, num_kept
from tests.transforms.transform_graphs import adjacency, graph, graphs, permuted, quick

POTENTIALS = st.sampled_from([0.0, 0.05, 0.25, 0.5, -0.3])


def laplacian(data: Data, q: float, weighted: bool = False) -> Tensor:
    """L entry by entry, complex128."""
    n, a = data.num_nodes, adjacency(data, weighted).tolist()
    both = [[(a[u][v] + a[v][u]) / 2 for v in range(n)] for u in range(n)]
    degree = [sum(row) for row in both]
    out = torch.eye(n, dtype=torch.complex128)
    for u in range(n):
        for v in range(n):
            if both[u][v] > 0:
                phase = cmath.exp(2j * math.pi * q * (a[u][v] - a[v][u]))
                out[u, v] -= both[u][v] / math.sqrt(degree[u] * degree[v]) * phase
    return out


def decomposition(data: Data) -> tuple[Tensor, Tensor]:
    """λ [M] and V [N, M]."""
    eigvals = data.magnetic_eigvals
    assert data.magnetic_num_eigvals.tolist() == [len(eigvals)]
    return eigvals, data.magnetic_eigvecs.view(data.num_nodes, len(eigvals))


def rebuilt(data: Data) -> Tensor:
    eigvals, eigvecs = decomposition(data)
    return eigvecs @ torch.diag(eigvals).to(eigvecs.dtype) @ eigvecs.mH


def test_one_edge_by_hand() -> None:
    data = AddMagneticLaplacian(q=0.25)(graph(2, [(0, 1)]))
    assert (data.magnetic_eigvals.dtype, data.magnetic_eigvecs.dtype) == (torch.float32, torch.complex64)
    assert_close(data.magnetic_eigvals, torch.tensor([0.0, 2.0]), atol=1e-6, rtol=0)
    assert_close(rebuilt(data), torch.tensor([[1, -1j], [1j, 1]], dtype=torch.complex64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("convention", "expected"), [("paper", 0.5 / math.sqrt(0.75)), ("union", math.sqrt(0.5))])
def test_conventions_by_hand(convention: str, expected: float) -> None:
    data = AddMagneticLaplacian(q=0.25, convention=convention)(graph(3, [(0, 1), (1, 2), (2, 1)]))
    assert_close(rebuilt(data)[0, 1], torch.tensor(-1j * expected, dtype=torch.complex64))


@quick
@given(graphs(), POTENTIALS, st.booleans())
def test_decomposes_the_laplacian(data: Data, q: float, weighted: bool) -> None:
    expected = laplacian(data, q, weighted)
    actual = torch.from_numpy(magnetic_laplacian(adjacency(data, weighted).numpy(), q))
    assert_close(actual, expected)
    assert torch.equal(actual, actual.mH)
    out = AddMagneticLaplacian(q, weighted=weighted)(data)
    assert_close(rebuilt(out), expected.to(torch.complex64), atol=2e-6, rtol=0)
    eigvals, eigvecs = decomposition(out)
    assert len(eigvals) == data.num_nodes
    assert torch.equal(eigvals, eigvals.sort().values)
    assert ((eigvals > -1e-6) & (eigvals < 2 + 1e-6)).all()
    assert_close(eigvecs.mH @ eigvecs, torch.eye(data.num_nodes, dtype=torch.complex64), atol=2e-6, rtol=0)


def test_without_potential_it_is_the_normalized_laplacian() -> None:
    data = Data(edge_index=torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(0)), num_nodes=13)
    peer = to_networkx(data, remove_self_loops=True)
    both = nx.Graph()  # (A + Aᵀ) / 2: a one-way edge weighs half a two-way one
    both.add_nodes_from(peer)
    for u, v in peer.edges:
        both.add_edge(u, v, weight=1.0 if peer.has_edge(v, u) else 0.5)
    expected = torch.from_numpy(nx.normalized_laplacian_matrix(both).toarray())
    isolated = list(nx.isolates(both))
    assert isolated
    expected[isolated, isolated] = 1  # networkx says 0
    assert_close(rebuilt(AddMagneticLaplacian(q=0)(data)).real, expected.float(), atol=1e-6, rtol=0)


@quick
@given(graphs(), POTENTIALS)
def test_reversing_all_edges_conjugates(data: Data, q: float) -> None:
    back = Data(edge_index=data.edge_index.flip(0), num_nodes=data.num_nodes)
    forward, backward = AddMagneticLaplacian(q)(data), AddMagneticLaplacian(q)(back)
    assert_close(forward.magnetic_eigvals, backward.magnetic_eigvals, atol=1e-6, rtol=0)
    assert_close(rebuilt(forward).conj().resolve_conj(), rebuilt(backward), atol=2e-6, rtol=0)


@quick
@given(graphs())
def test_undirected_graphs_stay_real(data: Data) -> None:
    both = Data(edge_index=torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1), num_nodes=data.num_nodes)
    assert not AddMagneticLaplacian(q=0.25)(both).magnetic_eigvecs.imag.any()


@pytest.mark.parametrize(("wanted", "kept"), [(1, 1), (2, 5), (3, 5), (5, 5), (9, 5), (None, 5)])
def test_truncation_keeps_whole_clusters(wanted: int | None, kept: int) -> None:
    complete = graph(5, [(u, v) for u in range(5) for v in range(5)])  # eigenvalues 0 and four times 5/4
    eigvals, eigvecs = decomposition(AddMagneticLaplacian(num_eigvecs=wanted)(complete))
    assert_close(eigvals, torch.tensor([0, 1.25, 1.25, 1.25, 1.25])[:kept], atol=1e-6, rtol=0)
    assert eigvecs.shape == (5, kept)


def test_cluster_tolerance() -> None:
    eigvals = torch.tensor([0.0, 1.0, 1.0 + 9e-6, 1.0 + 18e-6, 1.0 + 29e-6, 1.5, 1.5], dtype=torch.float64)
    assert [num_kept(eigvals, m) for m in range(1, 9)] == [1, 4, 4, 4, 5, 7, 7, 7]


@quick
@given(graphs(), POTENTIALS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_truncated_kernels_follow_the_nodes(data: Data, q: float, wanted: int, random: Random) -> None:
    order = torch.tensor(random.sample(range(data.num_nodes), data.num_nodes), dtype=torch.long)
    transform = AddMagneticLaplacian(q, num_eigvecs=wanted)
    expected = rebuilt(transform(data))[order][:, order]
    assert_close(rebuilt(transform(permuted(data, order))), expected, atol=3e-6, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"q": math.nan}, "q must be finite, got nan"),
        ({"num_eigvecs": 0}, "num_eigvecs must be at least 1, got 0"),
        ({"convention": "other"}, "convention must be 'paper' or 'union', got 'other'"),
    ],
)
def test_arguments_out_of_range(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"AddMagneticLaplacian: {message}"):
        AddMagneticLaplacian(**arguments)

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import erdos_renyi_graph

from pyg_textgraph.transforms import AddRRWP, pairs
from tests.transforms.transform_graphs import adjacency, graph, graphs, permuted, quick


def powers(data: Data, walk_length: int, weighted: bool) -> Tensor:
    """[N, N, K] from dense float64 matrix powers."""
    a = adjacency(data, weighted)
    a = a + torch.diag((a.sum(1) == 0).double())
    step = a / a.sum(1, keepdim=True)
    return torch.stack([torch.linalg.matrix_power(step, k) for k in range(walk_length)], dim=-1)


def test_path_by_hand() -> None:
    rrwp = AddRRWP(3)(graph(3, [(0, 1), (1, 0), (1, 2), (2, 1)])).rrwp
    assert rrwp.dtype == torch.float32
    assert rrwp[:, 0].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert rrwp[:, 1].tolist() == [0, 1, 0, 0.5, 0, 0.5, 0, 1, 0]
    assert rrwp[:, 2].tolist() == [0.5, 0, 0.5, 0, 1, 0, 0.5, 0, 0.5]


def test_rows_are_where_the_walk_starts_and_sinks_keep_it() -> None:
    rrwp = AddRRWP(3)(graph(2, [(0, 1)])).rrwp.view(2, 2, 3)
    assert rrwp[0, 1].tolist() == [0, 1, 1]
    assert rrwp[1, 0].tolist() == [0, 0, 0]
    assert rrwp[1, 1].tolist() == [1, 1, 1]


def test_weights_by_hand() -> None:
    data = graph(4, [(0, 1), (0, 2), (0, 1), (1, 0), (2, 2), (2, 0)], [1, 2, 1, 0, 5, 0.25])
    one_step = AddRRWP(2, weighted=True)(data).rrwp.view(4, 4, 2)[..., 1]
    assert one_step[0].tolist() == [0, 0.5, 0.5, 0]  # parallel edges add up
    assert one_step[1].tolist() == [0, 1, 0, 0]  # zero weight in all out-edges
    assert one_step[2].tolist() == [1, 0, 0, 0]  # self-loops are ignored
    one_step = AddRRWP(2)(data).rrwp.view(4, 4, 2)[..., 1]
    assert one_step[0].tolist() == [0, 0.5, 0.5, 0]  # parallel edges count once
    assert one_step[1].tolist() == [1, 0, 0, 0]


@quick
@given(graphs(), st.integers(1, 6), st.booleans())
def test_matches_dense_powers(data: Data, walk_length: int, weighted: bool) -> None:
    rrwp = AddRRWP(walk_length, weighted)(data).rrwp
    assert_close(rrwp, powers(data, walk_length, weighted).flatten(0, 1).float())
    # small weights too, which AddRandomWalkPE clamps to one
    per_start = rrwp.view(data.num_nodes, data.num_nodes, walk_length)
    assert_close(per_start.sum(1), torch.ones(data.num_nodes, walk_length))


@pytest.mark.parametrize("block_rows", [1, 7, 100])
def test_blocks_of_rows(monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", block_rows * 40)
    torch.manual_seed(0)
    data = Data(edge_index=erdos_renyi_graph(40, 0.1, directed=True), num_nodes=40)
    assert_close(AddRRWP()(data).rrwp, powers(data, 16, weighted=False).flatten(0, 1).float())


def test_diagonal_matches_random_walk_pe() -> None:
    torch.manual_seed(0)
    data = Data(edge_index=erdos_renyi_graph(30, 0.3), num_nodes=30)
    diagonal = AddRRWP(6)(data).rrwp.view(30, 30, 6).diagonal().T
    assert_close(diagonal[:, 1:], AddRandomWalkPE(5)(data).random_walk_pe)


@quick
@given(graphs(), st.booleans(), st.randoms(use_true_random=False))
def test_permuting_nodes_permutes_pairs(data: Data, weighted: bool, random: Random) -> None:
    n, transform = data.num_nodes, AddRRWP(5, weighted)
    order = torch.tensor(random.sample(range(n), n), dtype=torch.long)
    expected = transform(data).rrwp.view(n, n, 5)[order][:, order]
    assert_close(transform(permuted(data, order)).rrwp.view(n, n, 5), expected)


def test_walk_length_out_of_range() -> None:
    with pytest.raises(ValueError, match="AddRRWP: walk_length must be at least 1, got 0"):
        AddRRWP(0)

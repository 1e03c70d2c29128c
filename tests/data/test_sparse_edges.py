import pytest
import torch
from torch.testing import assert_close
from torch_geometric.data import Batch, Data

from pyg_textgraph.data.sparse_edges import SparseEdges


def test_causal_window_by_hand() -> None:
    edges = SparseEdges.causal_window(4, 3).validate()
    assert edges.index.squeeze(-1).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert edges.index.dtype == torch.int32
    assert edges.weight.eq(1).all()
    assert edges.nearest(2).index.squeeze(-1).tolist()[3] == [2, 3]
    assert repr(edges) == "SparseEdges(tokens=4, edges=3, pointers=1)"


def test_causal_window_continues_and_respects_left_padding() -> None:
    whole = SparseEdges.causal_window(9, 4)
    assert_close(SparseEdges.causal_window(4, 4, past=5).index, whole.index[5:])
    padded = SparseEdges.causal_window(5, 3, start=torch.tensor([0, 2]))
    assert_close(padded.index[0], SparseEdges.causal_window(5, 3).index)
    assert padded.index[1].squeeze(-1).tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 3, 4]]


def test_from_edge_index_points_to_the_sources() -> None:
    edge_index = torch.tensor([[1, 2, 3, 1, 0], [0, 0, 0, 0, 3]])  # 1 → 0 twice
    edges = SparseEdges.from_edge_index(edge_index, 4, k=2, s=2).validate()
    dense = edges.to_dense()  # [k, target, source]
    assert_close(dense[0, 0], torch.tensor([0.0, 0.5, 0.0, 0.5]))  # dealt in turn: 1 and 3
    assert_close(dense[1, 0], torch.tensor([0.0, 0.0, 1.0, 0.0]))
    assert_close(dense[:, 1], torch.eye(4)[[1, 1]])  # nothing points to 1: it points to itself
    assert_close(dense[0, 3], torch.eye(4)[0])
    assert_close(dense[1, 3], torch.eye(4)[3])


def test_from_edge_index_keeps_the_heaviest() -> None:
    edge_index = torch.tensor([[1, 2, 3, 2], [0, 0, 0, 0]])
    weight = torch.tensor([1.0, 0.5, 3.0, 0.6])
    edges = SparseEdges.from_edge_index(edge_index, 4, k=1, s=2, edge_weight=weight).validate()
    assert edges.index[0, 0].tolist() == [3, 2]  # 2 → 0 counts .5 + .6
    assert_close(edges.weight[0, 0], torch.tensor([3.0, 1.1]) / 4.1)


def test_from_edge_index_of_a_batch_stays_within_each_graph() -> None:
    torch.manual_seed(0)
    graphs = [Data(edge_index=torch.randint(n, (2, 3 * n)), num_nodes=n) for n in (5, 1, 7)]
    batch = Batch.from_data_list(graphs)
    edges = SparseEdges.from_edge_index(batch.edge_index, batch.num_nodes, k=3, s=2).validate()
    same_graph = batch.batch[edges.index.long()] == batch.batch.view(-1, 1, 1)
    assert same_graph[edges.weight > 0].all()
    single = SparseEdges.from_edge_index(graphs[2].edge_index, 7, k=3, s=2)
    assert_close(edges.weight[6:], single.weight)
    used = single.weight > 0
    assert_close((edges.index[6:] - 6)[used], single.index[used])


def test_empty_graph() -> None:
    edges = SparseEdges.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 2, k=2, s=3).validate()
    assert_close(edges.to_dense(), torch.eye(2).expand(2, 2, 2))
    assert SparseEdges.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 0, k=1, s=1).index.shape == (0, 1, 1)


def test_to_edge_index_is_the_inverse() -> None:
    torch.manual_seed(1)
    edge_index = torch.tensor([[3, 0, 2, 1], [0, 1, 1, 3]])
    edges = SparseEdges.from_edge_index(edge_index, 4, k=1, s=3)
    pointers, weight, channel = edges.to_edge_index()
    expected = {(3, 0), (0, 1), (2, 1), (1, 3), (2, 2)}  # node 2 has no source
    assert set(map(tuple, pointers.T.tolist())) == expected
    assert not channel.any()
    assert_close(torch.zeros(4).index_add_(0, pointers[1], weight), torch.ones(4))


def test_pad_adds_empty_slots() -> None:
    edges = SparseEdges.causal_window(3, 2)
    assert_close(edges.pad(4).to_dense(), edges.to_dense())
    assert edges.pad(4).num_pointers == 4
    with pytest.raises(ValueError, match="'s' is 1 but edges have 4 pointers"):
        edges.pad(4).pad(1)
    assert SparseEdges.cat([edges, edges.nearest(1)]).num_edges == 3


@pytest.mark.parametrize(
    ("index", "weight", "message"),
    [
        (torch.zeros(2, 1, 1).int(), torch.ones(2, 1, 2), "expected two of"),
        (torch.zeros(2, 1, 1), torch.ones(2, 1, 1), "expected integers"),
        (torch.full((2, 1, 1), 5), torch.ones(2, 1, 1), "points to 5 but there are 2 tokens"),
        (torch.zeros(2, 1, 1).int(), torch.full((2, 1, 1), 0.5), "sum to one"),
        (torch.zeros(2, 1, 2).int(), torch.tensor([-1.0, 2.0]).expand(2, 1, 2), "non-negative"),
    ],
)
def test_validate_says_what_is_wrong(index: torch.Tensor, weight: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseEdges(index, weight).validate()


def test_from_edge_index_refuses_unknown_nodes() -> None:
    with pytest.raises(ValueError, match="holds node 4 but the graph has 3 nodes"):
        SparseEdges.from_edge_index(torch.tensor([[0], [4]]), 3, k=1, s=1)
    with pytest.raises(ValueError, match="holds node -1 but"):
        SparseEdges.from_edge_index(torch.tensor([[-1], [1]]), 3, k=1, s=1)
    with pytest.raises(ValueError, match=r"'edge_weight' holds -1\.0, expected finite numbers above 0"):
        SparseEdges.from_edge_index(torch.tensor([[0, 1], [2, 2]]), 3, k=1, s=2, edge_weight=torch.tensor([1.0, -1.0]))


def test_the_nearest_edges() -> None:
    window = SparseEdges.causal_window(3, 4)
    assert [window.nearest(count).num_edges for count in (0, 1, 4, 9)] == [0, 1, 4, 4]
    assert torch.equal(window.nearest(2).index, window.index[..., -2:, :])

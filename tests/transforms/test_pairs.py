import tracemalloc

import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.utils import erdos_renyi_graph

from pyg_textgraph.transforms import AddRRWP, AddSPD, k_hop_pairs, pairs
from tests.transforms.transform_graphs import graph, graphs, quick


@pytest.mark.parametrize("directed", [False, True])
@quick
@given(data=graphs(), k=st.integers(0, 3))
def test_pairs_match_networkx(directed: bool, data: Data, k: int) -> None:
    peer = nx.DiGraph() if directed else nx.Graph()
    peer.add_nodes_from(range(data.num_nodes))
    peer.add_edges_from(data.edge_index.T.tolist())
    hops = nx.all_pairs_shortest_path_length(peer, cutoff=k)
    expected = sorted((u, v) for u, near in hops for v in near if u != v)
    actual = k_hop_pairs(data.edge_index, data.num_nodes, k, directed)
    assert actual.dtype == torch.long
    assert actual.shape == (2, len(expected))
    assert list(map(tuple, actual.T.tolist())) == expected


def test_many_paths_between_two_nodes_do_not_overflow() -> None:
    fan = [edge for middle in range(2, 258) for edge in ((0, middle), (middle, 1))]  # 256 paths, 0 in a byte
    assert [0, 1] in k_hop_pairs(graph(258, fan).edge_index, 258, 2).T.tolist()


def test_negative_k() -> None:
    with pytest.raises(ValueError, match="k must not be negative, got -1"):
        k_hop_pairs(torch.zeros(2, 0, dtype=torch.long), 3, -1)


TRANSFORMS = [
    (AddSPD, {"max_dist": 3}),
    (AddSPD, {"max_dist": 3, "directed": False}),
    (AddRRWP, {"walk_length": 4}),
    (AddRRWP, {"walk_length": 4, "weighted": True}),
]


@pytest.mark.parametrize(("transform", "arguments"), TRANSFORMS)
@quick
@given(data=graphs(), k=st.integers(0, 3))
def test_listed_equals_dense(transform: type, arguments: dict, data: Data, k: int) -> None:
    dense = transform(attr_name="out", **arguments)(data).out
    listed = transform(attr_name="out", k_hop=k, **arguments)(data)
    source, target = listed.pair_index
    assert torch.equal(listed.pair_index, k_hop_pairs(data.edge_index, data.num_nodes, k))
    assert listed.out.dtype == dense.dtype
    assert_close(listed.out, dense[source * data.num_nodes + target])


@pytest.mark.parametrize(("transform", "arguments"), TRANSFORMS[::2])
@pytest.mark.parametrize("block_rows", [1, 7, 100])
def test_listed_in_blocks(monkeypatch: pytest.MonkeyPatch, transform: type, arguments: dict, block_rows: int) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", block_rows * 40)
    torch.manual_seed(0)
    data = Data(edge_index=erdos_renyi_graph(40, 0.04, directed=True), num_nodes=40)
    dense = transform(attr_name="out", **arguments)(data).out
    listed = transform(attr_name="out", k_hop=2, **arguments)(data)
    assert_close(listed.out, dense[listed.pair_index[0] * 40 + listed.pair_index[1]])


def test_cora_size_needs_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", 1 << 18)
    torch.manual_seed(0)
    half = torch.randint(2708, (2, 5278))
    data = Data(edge_index=torch.cat([half, half.flip(0)], dim=1), num_nodes=2708)
    tracemalloc.start()
    out = T.Compose([AddSPD(k_hop=1), AddRRWP(16, k_hop=1)])(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.rrwp.shape == (out.pair_index.size(1), 16)
    assert (out.spd == 1).all()
    assert peak < 2708**2 * 2  # bytes of one int16 matrix


def test_transforms_share_pair_index() -> None:
    path = graph(4, [(0, 1), (1, 2), (2, 3)])
    out = T.Compose([AddSPD(k_hop=2), AddRRWP(k_hop=2)])(path)
    assert out.spd.size(0) == out.rrwp.size(0) == out.pair_index.size(1) == 10
    for k_hop in (1, None):
        with pytest.raises(ValueError, match=f"'pair_index' is not that of k_hop={k_hop}; give all .* the same k_hop"):
            AddRRWP(k_hop=k_hop)(out)


def test_listed_pairs_batch_and_separate() -> None:
    transform = T.Compose([AddSPD(k_hop=1), AddRRWP(4, k_hop=1)])
    graphs = [transform(graph(n, e)) for n, e in [(3, [(0, 1), (1, 2)]), (1, []), (2, [(1, 0)])]]
    batch = Batch.from_data_list(graphs)
    assert batch.pair_index.tolist() == [[0, 1, 1, 2, 4, 5], [1, 0, 2, 1, 5, 4]]
    for before, after in zip(graphs, batch.to_data_list(), strict=True):
        assert torch.equal(before.pair_index, after.pair_index)
        assert torch.equal(before.spd, after.spd)
        assert torch.equal(before.rrwp, after.rrwp)

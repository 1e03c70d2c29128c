from random import Random

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import floyd_warshall
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph

from pyg_textgraph.transforms import AddSPD, pairs
from tests.transforms.transform_graphs import adjacency, graph, graphs, permuted, quick


def test_path_by_hand() -> None:
    path = graph(3, [(0, 1), (1, 2)])
    assert AddSPD()(path).spd.tolist() == [0, 1, 2, -1, 0, 1, -1, -1, 0]
    assert AddSPD(directed=False)(path).spd.tolist() == [0, 1, 2, 1, 0, 1, 2, 1, 0]
    assert AddSPD(max_dist=1)(path).spd.tolist() == [0, 1, 1, -1, 0, 1, -1, -1, 0]
    assert AddSPD()(path).spd.dtype == torch.int16


def test_far_is_not_unreachable() -> None:
    chain = graph(41, [(i, i + 1) for i in range(40)])
    spd = AddSPD(max_dist=8)(chain).spd.view(41, 41)
    assert spd[0, 8] == spd[0, 9] == spd[0, 40] == 8
    assert spd[40, 0] == -1


@quick
@given(graphs(), st.booleans(), st.integers(1, 4))
def test_matches_networkx(data: Data, directed: bool, max_dist: int) -> None:
    peer = nx.DiGraph() if directed else nx.Graph()
    peer.add_nodes_from(range(data.num_nodes))
    peer.add_edges_from(data.edge_index.T.tolist())
    expected = torch.full((data.num_nodes, data.num_nodes), -1, dtype=torch.int16)
    for u, hops in nx.all_pairs_shortest_path_length(peer):
        for v, d in hops.items():
            expected[u, v] = min(d, max_dist)
    assert torch.equal(AddSPD(max_dist, directed)(data).spd, expected.flatten())


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("block_rows", [1, 7, 100])
def test_blocks_of_rows_match_scipy(monkeypatch: pytest.MonkeyPatch, directed: bool, block_rows: int) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", block_rows * 60)
    torch.manual_seed(0)
    data = Data(edge_index=erdos_renyi_graph(60, 0.03, directed=True), num_nodes=60)
    distance = floyd_warshall(adjacency(data).numpy(), directed=directed, unweighted=True)
    expected = np.where(np.isinf(distance), -1, np.minimum(distance, 8))
    assert (expected == 8).any() or not directed
    assert (AddSPD(directed=directed)(data).spd.view(60, 60).numpy() == expected).all()


@quick
@given(graphs(), st.booleans(), st.randoms(use_true_random=False))
def test_permuting_nodes_permutes_pairs(data: Data, directed: bool, random: Random) -> None:
    n, transform = data.num_nodes, AddSPD(directed=directed)
    order = torch.tensor(random.sample(range(n), n), dtype=torch.long)
    expected = transform(data).spd.view(n, n)[order][:, order]
    assert torch.equal(transform(permuted(data, order)).spd.view(n, n), expected)


@pytest.mark.parametrize("max_dist", [0, -1, 40_000])
def test_max_dist_out_of_range(max_dist: int) -> None:
    with pytest.raises(ValueError, match=f"AddSPD: max_dist must be between 1 and 32767, got {max_dist}"):
        AddSPD(max_dist)

"""k-hop visibility against networkx."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch, Data

from pyg_textgraph.nn.models.gtlm.visibility import hop_visibility


def random_graph(num_nodes: int, num_edges: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    return Data(edge_index=edge_index, num_nodes=num_nodes, target=seed % num_nodes)


def by_networkx(data: Data, k_hop: int, through_target: bool) -> torch.Tensor:
    graph = nx.Graph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.T.tolist())
    context = graph if through_target else graph.subgraph(set(graph) - {data.target})
    seen = torch.eye(data.num_nodes, dtype=torch.bool)
    for u in graph:
        for v in graph:
            within = graph if data.target in (u, v) else context
            if nx.has_path(within, u, v) and nx.shortest_path_length(within, u, v) <= k_hop:
                seen[u, v] = True
    return seen


@pytest.mark.parametrize("through_target", [False, True])
@pytest.mark.parametrize("k_hop", [0, 1, 2, 3])
def test_matches_networkx(k_hop: int, through_target: bool) -> None:
    graphs = [random_graph(n, e, seed) for seed, (n, e) in enumerate([(7, 8), (1, 0), (5, 4), (9, 12), (2, 1)])]
    for data in graphs:
        assert torch.equal(hop_visibility(data, k_hop, through_target)[0], by_networkx(data, k_hop, through_target))
    batch = Batch.from_data_list([Data(**data.to_dict()) for data in graphs])
    batch.target = torch.tensor([int(data.target) for data in graphs]) + batch.ptr[:-1]
    together = hop_visibility(batch, k_hop, through_target)
    for i, data in enumerate(graphs):
        n = data.num_nodes
        assert torch.equal(together[i, :n, :n], by_networkx(data, k_hop, through_target))


def test_two_neighbours_of_the_target_meet_only_through_it() -> None:
    star = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3, target=0)
    assert not hop_visibility(star, 2)[0, 1, 2]
    assert hop_visibility(star, 2, through_target=True)[0, 1, 2]
    assert hop_visibility(star, 1)[0, 0].all()

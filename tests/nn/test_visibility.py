"""k-hop visibility against networkx."""

import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn.models.gtlm.visibility import visible_pairs
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm, text_graph


def random_graph(num_nodes: int, num_edges: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    return Data(edge_index=edge_index, num_nodes=num_nodes, target=seed % num_nodes)


def seen(data: Data, k_hop: int, through_target: bool = False) -> torch.Tensor:
    """Who sees whom, dense, the diagonal included."""
    pairs = visible_pairs(data, k_hop, through_target)
    assert torch.equal(pairs, pairs.T.unique(dim=0).T)  # sorted, none twice
    out = torch.eye(data.num_nodes, dtype=torch.bool)
    out[tuple(pairs)] = True
    return out


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
        assert torch.equal(seen(data, k_hop, through_target), by_networkx(data, k_hop, through_target))
    batch = Batch.from_data_list([Data(**data.to_dict()) for data in graphs])
    batch.target = torch.tensor([int(data.target) for data in graphs]) + batch.ptr[:-1]
    alone = [by_networkx(data, k_hop, through_target) for data in graphs]
    assert torch.equal(seen(batch, k_hop, through_target), torch.block_diag(*alone).bool())


def test_two_neighbours_of_the_target_meet_only_through_it() -> None:
    star = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3, target=0)
    assert not seen(star, 2)[1, 2]
    assert seen(star, 2, through_target=True)[1, 2]
    assert seen(star, 1)[0].all()


@pytest.mark.parametrize("k_hop", [1, 2])
def test_listed_features_give_the_same_as_dense_ones(k_hop: int) -> None:
    graphs = [text_graph(9, 0), text_graph(6, 3)]
    model = gtlm(tiny("llama"), k_hop=k_hop)
    listed = T.Compose([AddSPD(8, k_hop=k_hop), AddRRWP(16, k_hop=k_hop), AddMagneticLaplacian(q=0.25)])
    bare = [TextAttributedData(edge_index=g.edge_index, input_ids=g.input_ids, num_tokens=g.num_tokens, target=g.target)
            for g in graphs]  # fmt: skip
    small = Batch.from_data_list([listed(data) for data in bare])
    assert "pair_index" in small
    dense = Batch.from_data_list(graphs)
    names = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    with torch.no_grad():
        torch.testing.assert_close(model(small, logits="all").logits, model(dense, logits="all").logits)
        everything = gtlm(tiny("llama"))(dense, logits="all").logits
        assert float((everything - model(dense, logits="all").logits).abs().max()) > 1e-2
    torch.testing.assert_close(model.classify(small, names), model.classify(dense, names))


def test_listed_features_need_a_limit_no_larger_than_theirs() -> None:
    data = TextAttributedData(edge_index=torch.tensor([[0], [1]]), input_ids=torch.tensor([3, 4]),
                              num_tokens=torch.tensor([1, 1]), target=0)  # fmt: skip
    with pytest.raises(ValueError, match="holds listed pairs"):
        gtlm(tiny("llama"), biases=("spd",))(AddSPD(8, k_hop=1)(data))
    path = TextAttributedData(edge_index=torch.tensor([[0, 1], [1, 2]]), input_ids=torch.tensor([3, 4, 5]),
                              num_tokens=torch.tensor([1, 1, 1]), target=0)  # fmt: skip
    path = AddSPD(8, k_hop=1)(path)
    gtlm(tiny("llama"), biases=("spd",), k_hop=1)(path)
    with pytest.raises(ValueError, match="'pair_index' lacks pairs"):
        gtlm(tiny("llama"), biases=("spd",), k_hop=2)(path)

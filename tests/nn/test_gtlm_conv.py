from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import Sequential
from torch_geometric.utils import coalesce

from pyg_textgraph.data import TokenLayout
from pyg_textgraph.nn import GTLMConv
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD

ALL = ("spd", "rrwp", "magnetic")
KINDS: list[tuple[str, ...]] = [(), ("spd",), ("rrwp",), ("magnetic",), ALL]


def conv_of(seed: int = 0, **kwargs: Any) -> GTLMConv:
    """A float64 layer whose parameters, those of the biases too, are random."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"heads": 2, "walk_length": 4, "max_dist": 3, "kernel_dim": 3, "eigval_dim": 5}
    conv = GTLMConv(6, 4, **(sizes | kwargs)).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_()
    return conv.eval()


def graph_of(num_nodes: int = 9, density: float = 0.25, seed: int = 0) -> Data:
    """A directed graph with self-loops; its last node is isolated."""
    torch.manual_seed(seed)
    adjacency = torch.rand(num_nodes, num_nodes) < density
    adjacency[-1] = adjacency[:, -1] = False
    edge_index = adjacency.nonzero().T.contiguous()
    return Data(x=torch.randn(num_nodes, 6, dtype=torch.float64), edge_index=edge_index, num_nodes=num_nodes)


def slow_bias(conv: GTLMConv, data: Data, query: int, key: int, backward: bool) -> Tensor:
    """(H,) bias of one pair from its path's features, by the formulas of the paper."""
    bias: Any = conv.graph_bias.layers[0]
    u, v = (key, query) if backward else (query, key)
    a = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    a[data.edge_index[0], data.edge_index[1]] = 1
    out = torch.zeros(conv.heads, dtype=torch.float64)
    if "spd" in bias:
        reach, hops = torch.eye(data.num_nodes, dtype=torch.float64), 0
        while reach[u, v] == 0 and hops < data.num_nodes:
            reach, hops = reach @ a, hops + 1
        out = out + bias["spd"].table[:, min(hops, 3) - 1]  # unreachable shares the last row
    if "rrwp" in bias:
        step = a + torch.diag((a.sum(1) == 0).double())
        step = step / step.sum(1, keepdim=True)
        walk = torch.stack([torch.linalg.matrix_power(step, k)[u, v] for k in range(4)])
        out = out + bias["rrwp"].lin2(torch.nn.functional.silu(bias["rrwp"].lin1(walk)))
    return out


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("biases", [(), ("spd",), ("rrwp",), ("spd", "rrwp")])
@pytest.mark.parametrize("k_hop", [1, None])
def test_matches_the_formula_node_by_node(biases: tuple[str, ...], flow: str, k_hop: int | None) -> None:
    data, conv = graph_of(), conv_of(biases=biases, flow=flow, k_hop=k_hop)
    edges = set(map(tuple, data.edge_index.T.tolist()))
    q, k, v = (lin(data.x).view(-1, 2, 4) for lin in (conv.lin_query, conv.lin_key, conv.lin_value))
    expected = []
    for i in range(data.num_nodes):
        sees = [j for j in range(data.num_nodes) if i == j or k_hop is None
                or ((j, i) if flow == "source_to_target" else (i, j)) in edges]  # fmt: skip
        score = torch.stack([(q[i] * k[j]).sum(-1) / 2 for j in sees])  # [J, H]
        for place, j in enumerate(sees):
            if i != j:
                score[place] += slow_bias(conv, data, i, j, flow == "source_to_target")
        expected.append(torch.einsum("jh,jhd->hd", score.softmax(0), v[sees]).flatten())
    assert_close(conv(data.x, data.edge_index), torch.stack(expected))


def test_gradients_match_the_formula() -> None:
    data, conv = graph_of(5, 0.5), conv_of(biases=ALL)
    data.x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: conv(x, data.edge_index), data.x)
    conv(data.x, data.edge_index).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())
    assert conv.graph_bias.layers[0]["rrwp"].lin2.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("k_hop", [1, 2, None])
@pytest.mark.parametrize(
    ("flow", "query", "key"), [("source_to_target", 1, 0), ("target_to_source", 0, 1)], ids=["to", "from"]
)
def test_one_directed_edge(flow: str, query: int, key: int, k_hop: int | None) -> None:
    """Features and visibility of 0 → 1: in PyG's flow node 1 sees node 0 by the walk 0 → 1, and node 0 only itself."""
    conv, edge = conv_of(biases=("spd", "rrwp"), flow=flow, k_hop=k_hop), torch.tensor([[0], [1]])
    graph = conv.structure(edge, num_nodes=2)
    rrwp, spd = graph.inputs["rrwp"], graph.inputs["spd"]
    if k_hop is not None:
        assert graph.pairs is not None
        assert graph.pairs.tolist() == [[query], [key]]
        assert rrwp[:, 0].tolist() == [0, 1, 1, 1]
        assert spd[:, 0].tolist() == [1, 0, 0]
    else:
        assert rrwp[0, query, :, key].tolist() == [0, 1, 1, 1]
        assert rrwp[0, key, :, query].tolist() == [0, 0, 0, 0]
        assert spd[0, query, :, key].tolist() == [1, 0, 0]
        assert spd[0, key, :, query].tolist() == [0, 0, 1]  # unreachable
    x = torch.randn(2, 6, dtype=torch.float64)
    moved = x.clone()
    moved[query] += 1
    same = conv(x, edge)[key].equal(conv(moved, edge)[key])  # the edge's other end never sees the query
    assert same is (k_hop is not None)
    moved = x.clone()
    moved[key] += 1
    assert not conv(x, edge)[query].equal(conv(moved, edge)[query])


def test_two_hops_follow_directions() -> None:
    conv = conv_of(biases=(), k_hop=2)
    path = torch.tensor([[0, 1, 3], [1, 2, 2]])  # 0 → 1 → 2 ← 3
    pairs = conv.structure(path, num_nodes=5).pairs
    assert pairs is not None
    assert sorted(map(tuple, pairs.T.tolist())) == [(1, 0), (2, 0), (2, 1), (2, 3)]
    assert conv_of(biases=(), k_hop=0).structure(path, num_nodes=5).pairs.numel() == 0


@pytest.mark.parametrize("biases", KINDS)
def test_listed_pairs_equal_the_dense_form(biases: tuple[str, ...]) -> None:
    """With k_hop at least the diameter of a strongly connected graph, both forms show everything."""
    data = graph_of(7)
    ring = torch.stack([torch.arange(7), torch.arange(1, 8) % 7])
    edge_index = coalesce(torch.cat([data.edge_index, ring], 1))
    out = [conv_of(biases=biases, k_hop=k)(data.x, edge_index) for k in (7, None)]
    assert_close(*out)


@pytest.mark.parametrize("k_hop", [1, None])
@pytest.mark.parametrize("biases", KINDS)
def test_batch_equals_graphs_one_by_one(biases: tuple[str, ...], k_hop: int | None) -> None:
    graphs, conv = [graph_of(n, seed=n) for n in (5, 1, 9, 2)], conv_of(biases=biases, k_hop=k_hop)
    batch = Batch.from_data_list(graphs)
    expected = torch.cat([conv(g.x, g.edge_index) for g in graphs])
    assert_close(conv(batch.x, batch.edge_index, batch.batch), expected, atol=1e-5, rtol=1e-4)
    shuffled = batch.edge_index[:, torch.randperm(batch.num_edges)]
    assert_close(conv(batch.x, shuffled, batch.batch), expected, atol=1e-5, rtol=1e-4)


def test_weights_stay_with_their_edges() -> None:
    graphs, conv = [graph_of(n, 0.6, seed=n) for n in (5, 7)], conv_of(biases=("rrwp", "magnetic"))
    for data in graphs:
        data.edge_weight = torch.rand(data.num_edges)
    batch = Batch.from_data_list(graphs)
    order = torch.randperm(batch.num_edges)
    actual = conv(batch.x, batch.edge_index[:, order], batch.batch, edge_weight=batch.edge_weight[order])
    expected = torch.cat([conv(g.x, g.edge_index, edge_weight=g.edge_weight) for g in graphs])
    assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(actual, conv(batch.x, batch.edge_index, batch.batch), atol=1e-3)


@pytest.mark.parametrize("k_hop", [2, None])
def test_permuting_nodes_permutes_the_output(k_hop: int | None) -> None:
    data, conv = graph_of(), conv_of(biases=ALL, k_hop=k_hop)
    order = torch.randperm(data.num_nodes)
    place = order.argsort()
    actual = conv(data.x[order], place[data.edge_index])
    assert_close(actual, conv(data.x, data.edge_index)[order], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stored_hops", [1, 3, None])
def test_features_from_the_loader_equal_those_computed_here(stored_hops: int | None) -> None:
    store = T.Compose([AddSPD(3, k_hop=stored_hops), AddRRWP(4, k_hop=stored_hops), AddMagneticLaplacian()])
    batch = next(iter(DataLoader([store(graph_of(n, seed=n)) for n in (6, 3, 8)], batch_size=3)))
    conv = conv_of(biases=ALL)
    expected = conv(batch.x, batch.edge_index, batch.batch)
    assert_close(conv(batch.x, batch.edge_index, features=batch), expected)
    graph = conv.structure(batch.edge_index, features=batch)
    assert_close(conv(batch.x, graph), expected)


def test_packed_tokens() -> None:
    """Tokens see those of their own node and of neighbours; one token per node is the ordinary case."""
    data, conv = graph_of(5, 0.5), conv_of(biases=("rrwp",))
    count = torch.tensor([2, 1, 0, 3, 1])
    node = torch.repeat_interleave(count)
    x = torch.randn(7, 6, dtype=torch.float64)
    out = conv(x, data.edge_index, num_tokens=count)
    pairs = conv.structure(data.edge_index, num_nodes=5).pairs
    assert pairs is not None
    sees = torch.eye(5, dtype=torch.bool)
    sees[pairs[0], pairs[1]] = True
    moved = conv(torch.cat([x[:-1], x[-1:] + 1]), data.edge_index, num_tokens=count)
    assert ((moved != out).any(1) == sees[node, 4]).all()
    assert_close(conv(data.x, data.edge_index, num_tokens=torch.ones(5, dtype=torch.long)),
                 conv(data.x, data.edge_index))  # fmt: skip
    layout = TokenLayout.from_data(Data(num_tokens=count, num_nodes=5), mode="full")
    assert_close(conv(x, data.edge_index, layout=layout), out)


@pytest.mark.filterwarnings("ignore:Sparse")  # torch calls its sparse tensors a beta
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_adjacency(layout: torch.layout) -> None:
    data, conv = graph_of(), conv_of(biases=("rrwp",))
    edge_index, weight = coalesce(data.edge_index), torch.rand(data.num_edges, dtype=torch.float64)
    expected = conv(data.x, edge_index, edge_weight=weight)
    adj_t = torch.sparse_coo_tensor(edge_index.flip(0), weight, (9, 9)).coalesce()
    assert_close(conv(data.x, adj_t if layout == torch.sparse_coo else adj_t.to_sparse_csr()), expected)
    assert not torch.allclose(conv(data.x, edge_index), expected)


def test_untrained_biases_change_nothing() -> None:
    data = graph_of()
    conv = GTLMConv(6, 4, heads=2, biases=ALL).double()
    plain = GTLMConv(6, 4, heads=2, biases=()).double()
    plain.load_state_dict(conv.state_dict(), strict=False)
    assert_close(conv(data.x, data.edge_index), plain(data.x, data.edge_index))


@pytest.mark.parametrize("k_hop", [1, None])
@pytest.mark.parametrize("biases", [(), ALL])
def test_dropout_hides_pairs_in_training_only(biases: tuple[str, ...], k_hop: int | None) -> None:
    data, conv = graph_of(), conv_of(biases=biases, k_hop=k_hop, dropout=0.5)
    first, again = (conv(data.x, data.edge_index) for _ in range(2))
    assert first.equal(again)
    conv.train()
    first, again = (conv(data.x, data.edge_index) for _ in range(2))
    assert first.isfinite().all()
    assert not first.equal(again)
    first.sum().backward()
    assert all(p.grad.isfinite().all() for p in conv.parameters())
    alone = conv.lin_value(data.x)
    conv.dropout = 1 - 1e-12
    assert_close(conv(data.x, data.edge_index), alone)  # a node always sees itself


def test_heads_are_averaged_without_concat() -> None:
    data, conv = graph_of(), conv_of()
    out = conv(data.x, data.edge_index)
    conv.concat = False
    assert_close(conv(data.x, data.edge_index), out.view(-1, 2, 4).mean(1))


@pytest.mark.parametrize("k_hop", [1, None])
@pytest.mark.parametrize("biases", KINDS)
def test_no_nodes_and_no_edges(biases: tuple[str, ...], k_hop: int | None) -> None:
    conv, edges = conv_of(biases=biases, k_hop=k_hop), torch.empty(2, 0, dtype=torch.long)
    x = torch.randn(3, 6, dtype=torch.float64)
    assert conv(x[:0], edges).shape == (0, 8)
    assert conv(x[:0], edges, edges[0]).shape == (0, 8)
    assert conv(x[:1], edges).equal(conv.lin_value(x[:1]))
    if k_hop is not None:
        assert_close(conv(x, edges), conv.lin_value(x))  # isolated nodes see themselves


def test_self_loops_and_parallel_edges_change_nothing() -> None:
    data, conv = graph_of(), conv_of(biases=ALL)
    loops = torch.arange(9).expand(2, -1)
    more = torch.cat([data.edge_index, loops, data.edge_index[:, :3]], 1)
    assert_close(conv(data.x, more), conv(data.x, data.edge_index))


def test_cached_structure_is_kept_until_reset() -> None:
    data, conv = graph_of(), conv_of(cached=True)
    out = conv(data.x, data.edge_index)
    assert conv(data.x, torch.empty(2, 0, dtype=torch.long)).equal(out)
    state = conv.state_dict()
    conv.reset_parameters()
    conv.load_state_dict(state)
    assert_close(conv(data.x, data.edge_index[:, :0]), conv.lin_value(data.x))


def test_bfloat16_and_no_grad() -> None:
    data, conv = graph_of(), conv_of(biases=ALL)
    expected = conv(data.x, data.edge_index)
    with torch.no_grad():
        out = conv.bfloat16()(data.x.bfloat16(), data.edge_index)
        assert out.dtype == torch.bfloat16
        assert_close(out.double(), expected, atol=0.2, rtol=0.1)
        with torch.autocast("cpu", torch.bfloat16):
            assert conv.float()(data.x.float(), data.edge_index).dtype == torch.bfloat16


def test_in_a_pyg_script() -> None:
    data = graph_of(12, 0.3)
    model = Sequential("x, edge_index", [
        (GTLMConv(-1, 4, heads=2, cached=True), "x, edge_index -> x"), nn.ELU(),
        (GTLMConv(8, 3, concat=False), "x, edge_index -> x"),
    ])  # fmt: skip
    x, target = data.x.float(), torch.arange(12) % 3
    model(x, data.edge_index)  # sizes of lazy layers
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(80):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x, data.edge_index), target)
        loss.backward()
        optimizer.step()
    assert loss < 0.2
    assert repr(model[0]) == "GTLMConv(-1, 4, heads=2, k_hop=1, biases=rrwp)"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k_hop": -1}, "'k_hop' is -1"),
        ({"dropout": 1.0}, "'dropout' is 1.0"),
        ({"flow": "both"}, "'flow' is 'both'"),
        ({"biases": ("rwp",)}, "'biases' holds .'rwp'."),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GTLMConv(6, 4, **kwargs)


def test_bad_input() -> None:
    data, conv = graph_of(), conv_of()
    x, edge_index = data.x, data.edge_index
    two, three_tokens = torch.tensor([0] * 4 + [1] * 5), torch.tensor([1] * 3 + [0] * 6)
    for message, call in {
        "'edge_index' holds node 9 but there are 9 nodes": lambda: conv(x, edge_index + 9),
        "'edge_index' is torch.float32": lambda: conv(x, edge_index.float()),
        "'batch' is not ascending": lambda: conv(x, edge_index, two.flip(0)),
        "joins nodes of two graphs": lambda: conv(x, torch.tensor([[0], [8]]), two),
        "the batch has 5 nodes": lambda: conv(x, edge_index, two[4:]),
        "'x' has shape .9, 6., expected .3, F.": lambda: conv(x, edge_index, num_tokens=three_tokens),
        "the number of nodes is unknown": lambda: conv.structure(edge_index),
        "no 'rrwp', which bias 'rrwp' needs": lambda: conv(x, edge_index, features=data),
        "lacks pairs that see each other": lambda: conv(x, edge_index, features=AddRRWP(4, k_hop=0)(data.clone())),
        "'features' has graphs of .9. nodes, expected .4, 5.": lambda: conv(
            x, edge_index[:, :0], two, features=AddRRWP(4)(data.clone())
        ),
        "'rrwp' has 5 steps, expected 4": lambda: conv(x, edge_index, features=AddRRWP(5)(data.clone())),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="drop k_hop from"):
        conv_of(k_hop=None)(x, edge_index, features=AddRRWP(4, k_hop=1)(data.clone()))


def test_one_layer_has_no_groups() -> None:
    with pytest.raises(ValueError, match="'bias_groups' is 1, expected none"):
        GTLMConv(4, 4, biases=("magnetic",), bias_groups=1)


def test_magnetic_bias_of_graphs_of_unequal_size() -> None:
    conv = conv_of(biases=("magnetic",))
    graphs = [graph_of(3, seed=1), graph_of(30, seed=2), graph_of(1, seed=3), graph_of(4, seed=4)]
    batch = Batch.from_data_list(graphs)
    alone = torch.cat([conv(graph.x, graph.edge_index) for graph in graphs])
    assert_close(conv(batch.x, batch.edge_index, batch.batch), alone)

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose
from torch_geometric.utils import to_dense_adj

from pyg_textgraph.nn import GraphBias, GraphBiasConfig
from pyg_textgraph.nn.bias import BIASES, MagneticBias, PairFeatures, SPDBias
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD

SIZES: dict[str, Any] = {"max_dist": 3, "walk_length": 5, "kernel_dim": 3, "eigval_dim": 4}
STORE = Compose([AddSPD(3), AddRRWP(5), AddMagneticLaplacian()])
KINDS: list[tuple[str, ...]] = [("spd",), ("rrwp",), ("magnetic",), BIASES]


def graph_of(num_nodes: int, seed: int = 0, density: float = 0.3) -> Data:
    adjacency = torch.rand(num_nodes, num_nodes, generator=torch.Generator().manual_seed(seed)) < density
    return STORE(Data(edge_index=adjacency.nonzero().T.contiguous(), num_nodes=num_nodes))


def bias_of(biases: tuple[str, ...] = BIASES, num_layers: int = 2, **kwargs: Any) -> GraphBias:
    """Float64, with random parameters."""
    torch.manual_seed(0)
    bias = GraphBias(num_layers, 3, GraphBiasConfig(biases, **(SIZES | kwargs))).double()
    with torch.no_grad():
        for parameter in bias.parameters():
            parameter.normal_()
    return bias


def values(bias: GraphBias, batch: Data, layer: int = 1, **kwargs: Any) -> Tensor:
    features = PairFeatures.from_batch(batch, bias.config.biases, torch.float64, **kwargs)
    out = bias(layer, bias.prepare(features))
    assert out is not None
    return out


def mlp(module: Any, x: Tensor) -> Tensor:
    return module.lin2(F.silu(module.lin1(x)))


def slow_spd(module: Any, data: Data) -> Tensor:
    """(N, N, H), from the stored distances."""
    hops = data.spd.view(data.num_nodes, -1).tolist()
    zero, table = torch.zeros(3, dtype=torch.float64), module.table.T
    rows = [[zero if d == 0 else table[(3 if d < 0 else d) - 1] for d in row] for row in hops]
    return torch.stack([torch.stack(row) for row in rows])


def slow_rrwp(module: Any, data: Data) -> Tensor:
    return mlp(module, data.rrwp.double().view(data.num_nodes, data.num_nodes, -1))


def slow_magnetic(module: Any, data: Data) -> Tensor:
    """The paper's kernel in complex numbers, one channel at a time."""
    eigvals, v = data.magnetic_eigvals.double(), data.magnetic_eigvecs.to(torch.complex128).view(data.num_nodes, -1)
    ell = module.lin_eigval(eigvals[:, None])
    phi = F.silu(module.lin_filter(torch.cat([ell, ell.mean(0).expand_as(ell)], -1)))  # [M, C]
    kernel = torch.stack([v @ torch.diag(c.to(v.dtype)) @ v.conj().T for c in phi.T], -1)  # [N, N, C]
    return mlp(module, torch.cat([kernel.real, kernel.imag], -1))


def slow(bias: GraphBias, data: Data, layer: int = 1) -> Tensor:
    """(H, N, N), row = query's node, of the path from query to key."""
    each = {"spd": slow_spd, "rrwp": slow_rrwp, "magnetic": slow_magnetic}
    modules: Any = bias.layers[layer]
    return sum(each[name](modules[name], data) for name in bias.config.biases).permute(2, 0, 1)


@pytest.mark.parametrize(("layers", "heads", "expected"), [(16, 32, 173_056), (30, 9, 251_340)])
def test_number_of_parameters(layers: int, heads: int, expected: int) -> None:
    """Those of Llama-3.2-1B and SmolLM2-135M."""
    with torch.device("meta"):
        bias = GraphBias(layers, heads)
    assert sum(p.numel() for p in bias.parameters()) == expected


@pytest.mark.parametrize("biases", KINDS)
def test_matches_the_formulas(biases: tuple[str, ...]) -> None:
    data, bias = graph_of(7), bias_of(biases)
    assert_close(values(bias, data)[0], slow(bias, data))
    assert not torch.allclose(values(bias, data, layer=0), values(bias, data))


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_neighbouring_layers_share_a_magnetic_bias(groups: int) -> None:
    data, layers = graph_of(6), 5
    bias = bias_of(num_layers=layers, bias_groups=groups)
    assert len(bias.groups) == groups
    for layer in range(layers):
        modules: Any = bias.layers[layer]
        shared: Any = bias.groups[layer * groups // layers]
        parts = (
            slow_spd(modules["spd"], data),
            slow_rrwp(modules["rrwp"], data),
            slow_magnetic(shared["magnetic"], data),
        )
        assert_close(values(bias, data, layer)[0], sum(parts).permute(2, 0, 1))
    alone = bias_of(("magnetic",), num_layers=layers, bias_groups=groups)
    assert sum(p.numel() for p in alone.parameters()) * layers == groups * sum(
        p.numel() for p in bias_of(("magnetic",), num_layers=layers).parameters()
    )
    assert values(alone, data, 4).shape == (1, 3, 6, 6)
    values(bias, data).sum().backward()
    with pytest.raises(ValueError, match="'bias_groups' is 6, expected at most 5"):
        bias_of(num_layers=layers, bias_groups=6)


def test_no_biases() -> None:
    bias = bias_of(())
    assert bias(0, bias.prepare(PairFeatures())) is None


@pytest.mark.parametrize("biases", KINDS)
def test_zero_at_the_start_and_after_a_reset_but_not_stuck_there(biases: tuple[str, ...]) -> None:
    data, bias = graph_of(6), bias_of(biases)
    assert values(bias, data).abs().min() > 0 or biases == ("spd",)
    bias.reset_parameters()
    out = values(bias, data)
    assert out.eq(0).all()
    out[0, 0].square().add(out[0, 0]).sum().backward()
    last = [p.grad for name, p in bias.layers[1].named_parameters() if "lin2.weight" in name or "table" in name]
    assert len(last) == len(biases)
    assert all(grad is not None and grad.abs().sum() > 0 for grad in last)


@pytest.mark.parametrize("biases", KINDS)
def test_padding_does_not_leak(biases: tuple[str, ...]) -> None:
    """Not into another graph's mean over eigenvalues either."""
    graphs, bias = [graph_of(n, seed=n) for n in (4, 8, 1, 6)], bias_of(biases)
    out = values(bias, Batch.from_data_list(graphs))
    for g, data in enumerate(graphs):
        n = data.num_nodes
        assert_close(out[g, :, :n, :n], values(bias, data)[0])


@pytest.mark.parametrize("flow", ["target_to_source", "source_to_target"])
@pytest.mark.parametrize("biases", KINDS)
def test_listed_pairs_are_entries_of_the_dense_form(biases: tuple[str, ...], flow: str) -> None:
    batch, bias = Batch.from_data_list([graph_of(n, seed=n) for n in (4, 7, 1, 5)]), bias_of(biases)
    dense = values(bias, batch, flow=flow)
    graph = torch.tensor([0, 0, 1, 1, 1, 3])
    query, key = torch.tensor([[0, 3, 6, 0, 2, 4], [2, 1, 0, 6, 1, 0]])
    pairs = torch.stack([query, key]) + batch.ptr[graph]
    assert_close(values(bias, batch, flow=flow, pairs=pairs), dense[graph, :, query, key].T)
    assert values(bias, batch, flow=flow, pairs=pairs[:, :0]).shape == (3, 0)


@pytest.mark.parametrize("biases", KINDS)
def test_the_other_flow_reads_the_path_from_key_to_query(biases: tuple[str, ...]) -> None:
    data, bias = graph_of(6), bias_of(biases)
    forward, backward = (values(bias, data, flow=flow) for flow in ("target_to_source", "source_to_target"))
    assert_close(backward, forward.transpose(2, 3))
    assert not torch.allclose(backward, forward)


def test_rows_of_the_distance_table() -> None:
    module = SPDBias(1, max_dist=3)
    hops = torch.tensor([0, 1, 2, 3, 7, -1], dtype=torch.int16)
    assert module.one_hot(hops).T.argmax(-1).tolist() == [0, 0, 1, 2, 2, 2]
    assert module.one_hot(hops).sum(0).tolist() == [0, 1, 1, 1, 1, 1]  # a node and itself read no row
    module = SPDBias(1, max_dist=3, unreachable=True)
    assert module.table.shape == (1, 4)
    assert module.one_hot(hops).T.argmax(-1).tolist() == [0, 0, 1, 2, 2, 3]


def test_the_basis_of_an_eigenspace_does_not_matter() -> None:
    """A star has an eigenspace of many dimensions; single eigenvectors also have arbitrary phases."""
    star = torch.stack([torch.zeros(5, dtype=torch.long), torch.arange(1, 6)])
    data, bias = STORE(Data(edge_index=torch.cat([star, star.flip(0)], 1), num_nodes=6)), bias_of(("magnetic",))
    eigvals, v = data.magnetic_eigvals, data.magnetic_eigvecs.view(6, 6)
    same = (eigvals[:, None] - eigvals).abs() < 1e-5
    assert int(same.sum()) == 18  # eigenspaces of 1, 4 and 1 dimensions
    mix = torch.randn(6, 6, dtype=v.dtype, generator=torch.Generator().manual_seed(0)) * same
    rotated = data.clone()
    rotated.magnetic_eigvecs = (v @ torch.linalg.qr(mix).Q).flatten()
    assert not torch.allclose(rotated.magnetic_eigvecs, data.magnetic_eigvecs)
    assert_close(values(bias, rotated), values(bias, data), atol=1e-5, rtol=1e-5)


def test_magnetic_bias_follows_permutations_with_truncated_spectra() -> None:
    edge_index = torch.tensor([[0, 0, 0, 0, 5], [1, 2, 3, 4, 1]])
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    bias, store = bias_of(("magnetic",)), AddMagneticLaplacian(num_eigvecs=2)
    data, moved = (store(Data(edge_index=e, num_nodes=6)) for e in (edge_index, order.argsort()[edge_index]))
    assert 2 <= int(data.magnetic_num_eigvals) < 6
    assert_close(values(bias, moved), values(bias, data)[:, :, order][..., order], atol=1e-4, rtol=1e-4)


def test_undirected_graphs_have_a_symmetric_bias() -> None:
    data, bias = graph_of(6), bias_of(("magnetic",))
    data = STORE(Data(edge_index=torch.cat([data.edge_index, data.edge_index.flip(0)], 1), num_nodes=6))
    assert to_dense_adj(data.edge_index).eq(to_dense_adj(data.edge_index).mT).all()
    assert_close(values(bias, data), values(bias, data).mT)


@pytest.mark.parametrize("listed", [False, True])
def test_checkpointing_gives_the_same_gradients(listed: bool) -> None:
    data, grads = graph_of(6), []
    pairs = torch.tensor([[0, 1, 5], [1, 4, 2]]) if listed else None
    for checkpoint_bias in (False, True):
        bias = bias_of(checkpoint_bias=checkpoint_bias)
        out = values(bias, data, pairs=pairs)
        grads.append([out, *torch.autograd.grad(out.square().sum(), list(bias.layers[1].parameters()))])
    assert_close(*grads)


@pytest.mark.parametrize(
    ("name", "key", "transform"),
    [("spd", "spd", "AddSPD"), ("rrwp", "rrwp", "AddRRWP"), ("magnetic", "magnetic_eigvals", "AddMagneticLaplacian")],
)
def test_missing_features(name: str, key: str, transform: str) -> None:
    data = graph_of(4)
    del data[key]
    with pytest.raises(ValueError, match=f"no '{key}', which bias '{name}' needs; add {transform}"):
        PairFeatures.from_batch(data, BIASES)


def test_features_of_other_pairs() -> None:
    data = graph_of(5)
    listed = AddRRWP(5, k_hop=1)(Data(edge_index=data.edge_index, num_nodes=5))
    with pytest.raises(ValueError, match=r"'rrwp' holds listed pairs \(k_hop\), expected all pairs; drop k_hop"):
        PairFeatures.from_batch(listed, ("rrwp",))
    with pytest.raises(ValueError, match="'pair_index' lacks pairs"):
        PairFeatures.from_batch(listed, ("rrwp",), pairs=torch.tensor([[3], [3]]))
    with pytest.raises(ValueError, match="'rrwp' has 5 steps, expected 4"):
        values(bias_of(("rrwp",), walk_length=4), data)
    data.magnetic_eigvecs = data.magnetic_eigvecs[:-1]
    with pytest.raises(ValueError, match=r"'magnetic_eigvecs' has 24 .* expected 25 and 5"):
        PairFeatures.from_batch(data, ("magnetic",))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"biases": ("spd", "x")}, "'biases' holds .'x'."), ({"walk_length": 0}, "'walk_length' is 0")],
)
def test_bad_configuration(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphBiasConfig(**kwargs)


def test_filter_ignores_padded_eigenvalues() -> None:
    torch.manual_seed(0)
    module = MagneticBias(2, kernel_dim=3, eigval_dim=4)
    eigvals = torch.tensor([[0.1, 0.7, 1.9]])
    alone = module.filter(eigvals[:, :2], torch.ones(1, 2, dtype=torch.bool))
    assert_close(module.filter(eigvals, torch.tensor([[True, True, False]]))[:, :2], alone)

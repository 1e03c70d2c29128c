import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.graph_machine_layer import GraphMachineLayer
from pyg_textgraph.nn.sparse_edge_attention import SparseEdgeAttention, heads_across_groups
from pyg_textgraph.nn.sparse_edge_referral import SparseEdgeReferral, temperature

DIM = 12


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def layer(**options: object) -> GraphMachineLayer:
    torch.manual_seed(0)
    defaults = {"num_edges": 4, "num_refresh": [(), ()], "budgets": (4, 4, 4, 4)}
    return GraphMachineLayer(DIM, 24, 4, 2, 6, **{**defaults, **options})


def strong(module: torch.nn.Module) -> torch.nn.Module:
    """Large weights, so that mixing and temperatures matter."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    return module


@pytest.mark.parametrize("light", [0.0, 1e-10, 1e-30, 1e-45])
def test_gradients_stay_finite_however_light_a_pointer_is(light: float) -> None:
    """Referrals of referrals make weights that are no normal numbers any more."""
    n, k, s = 10, 4, 4
    index = torch.randint(n, (n, k, s), dtype=torch.int32)
    weight = torch.rand(n, k, s)
    weight[..., 1:3] *= light
    weight = (weight / weight.sum(-1, keepdim=True)).requires_grad_()
    module = strong(layer())
    x, edges = module(torch.randn(n, DIM), SparseEdges(index, weight))
    x, edges = module(x, edges)
    (x.square().sum() + edges.weight.square().sum()).backward()
    assert weight.grad is not None
    assert all(p.grad is None or p.grad.isfinite().all() for p in (weight, *module.parameters()))
    assert weight.grad.any()


@pytest.mark.parametrize("kind", ["softplus", "exponential"])
def test_temperature_of_zero_is_one(kind: str) -> None:
    assert_close(temperature(torch.zeros(1), kind), torch.ones(1))
    x = torch.linspace(-5, 5, 11)
    assert (temperature(x, kind) > 0).all()
    assert (temperature(x, kind).diff() > 0).all()


def test_head_order() -> None:
    assert heads_across_groups(16, 8)[-8:] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert heads_across_groups(6, 2) == [0, 3, 1, 4, 2, 5]


def test_untrained_referral_averages_and_follows() -> None:
    """With a zero projection all channels average all edges: every leg is the mean of the dense matrices."""
    ser = SparseEdgeReferral(DIM, num_edges=3, budgets=(9, 9, 9), num_refresh=1)
    torch.nn.init.zeros_(ser.proj.weight)
    n = 6
    edges, refresh = SparseEdges.causal_window(n, 3), SparseEdges.causal_window(n, 1)
    out = ser(torch.randn(n, DIM), edges, [refresh]).validate()
    mean = (edges.to_dense().sum(0) + refresh.to_dense()[0]) / 4
    assert_close(out.to_dense(), (mean @ mean).expand(3, n, n))


def test_refresh_edges_bypass_the_input_temperature() -> None:
    ser = SparseEdgeReferral(2, num_edges=1, budgets=(2, 2, 2), num_refresh=1)
    torch.nn.init.zeros_(ser.proj.weight)
    with torch.no_grad():
        ser.proj.weight[0] = 3.0  # the input temperature only
    soft = SparseEdges(torch.tensor([0, 1]).view(1, 1, 2).expand(2, 1, 2), torch.tensor([0.6, 0.4]).expand(2, 1, 2))
    x = torch.ones(2, 2)
    heat = temperature(torch.tensor(6.0))
    sharp = 0.6**heat / (0.6**heat + 0.4**heat)
    leg = (sharp + 0.6) / 2  # both rows are the same, hence following them changes nothing
    out = ser(x, soft, [soft]).to_dense()[0]
    assert_close(out, torch.stack([leg, 1 - leg]).expand(2, 2))


def test_realignment_takes_the_last_heads_and_keeps_tempered_edges() -> None:
    sea = strong(SparseEdgeAttention(DIM, num_heads=2, num_groups=1, head_dim=4, num_edges=5, num_pointers=3))
    n = 7
    soft = SparseEdges(torch.randint(n, (n, 5, 3), dtype=torch.int32), torch.rand(n, 5, 3).softmax(-1))
    x = torch.randn(n, DIM)
    _, out = sea(x, soft)
    out.validate()
    assert_close(out.index[:, :3], soft.index[:, :3])
    heat = temperature(sea.in_proj(x)[:, :5])[:, :3]
    power = soft.weight[:, :3] ** heat.unsqueeze(-1)
    assert_close(out.weight[:, :3], power / power.sum(-1, keepdim=True))
    assert_close(out.index[:, 3], out.index[:, 4])  # both heads of the group share their pointers, not their weights
    assert not torch.allclose(out.weight[:, 3], out.weight[:, 4])


def test_realignment_cuts_wider_edges() -> None:
    sea = strong(SparseEdgeAttention(DIM, num_heads=2, num_groups=1, head_dim=4, num_edges=5, num_pointers=3))
    wide = SparseEdges(torch.randint(7, (7, 5, 6), dtype=torch.int32), torch.rand(7, 5, 6).softmax(-1))
    out = sea(torch.randn(7, DIM), wide)[1].validate()
    assert out.num_pointers == 3


def test_a_graph_without_nodes() -> None:
    sea = strong(SparseEdgeAttention(DIM, num_heads=2, num_groups=1, head_dim=4, num_edges=5, num_pointers=3))
    x, edges = sea(torch.randn(0, DIM), SparseEdges(torch.zeros(0, 5, 3, dtype=torch.int32), torch.zeros(0, 5, 3)))
    assert x.shape == (0, DIM)
    assert edges.index.shape == (0, 5, 3)


def test_realignment_with_few_edges_takes_one_head_of_each_group_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sea = strong(SparseEdgeAttention(DIM, num_heads=4, num_groups=2, head_dim=4, num_edges=3, num_pointers=2))
    edges = SparseEdges(torch.randint(6, (6, 3, 2), dtype=torch.int32), torch.rand(6, 3, 2).softmax(-1))
    attention = torch.rand(6, 4, 2).softmax(-1)
    monkeypatch.setattr(
        "pyg_textgraph.nn.sparse_edge_attention.edge_attention", lambda q, *rest: (torch.zeros_like(q), attention)
    )
    assert_close(sea(torch.randn(6, DIM), edges)[1].weight, attention[:, [0, 2, 1]])


def test_without_realignment_edges_pass_unchanged() -> None:
    sea = SparseEdgeAttention(DIM, 2, 1, 4, num_edges=3, realign=False)
    edges = SparseEdges.causal_window(5, 3)
    assert_close(sea(torch.randn(5, DIM), edges)[1].to_dense(), edges.to_dense())


@pytest.mark.parametrize(
    "options", [{}, {"budgets": (2, 4, 3, 2)}, {"num_edges": 6}, {"temperature_kind": "exponential"}]
)
def test_causal_edges_stay_causal(options: dict[str, object]) -> None:
    module = strong(layer(**options))
    n, changed = 12, 7
    edges = SparseEdges.causal_window(n, module.num_edges)
    x = torch.randn(n, DIM)
    other = x.clone()
    other[changed:] = torch.randn(n - changed, DIM)
    (out, state), (out2, state2) = module(x, edges), module(other, edges)
    assert_close(out[:changed], out2[:changed])
    assert_close(state.to_dense()[:, :changed], state2.to_dense()[:, :changed])
    assert not torch.allclose(out[changed:], out2[changed:])
    assert (state.index <= torch.arange(n).view(n, 1, 1)).all()


def two_layers(x: Tensor, graph: Data) -> Tensor:
    x, edges = strong(layer())(x, graph.edge_index)
    return strong(layer())(x, edges)[0]


def test_works_on_a_pyg_batch_as_on_its_graphs() -> None:
    torch.manual_seed(5)
    graphs = [Data(x=torch.randn(n, DIM), edge_index=torch.randint(n, (2, 3 * n))) for n in (4, 1, 9)]
    batch = Batch.from_data_list(graphs)
    expected = torch.cat([two_layers(g.x, g) for g in graphs])
    assert_close(two_layers(batch.x, batch), expected, atol=1e-4, rtol=1e-4)


def test_a_walk_reaches_as_many_hops_as_there_are_referrals() -> None:
    n = 9
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])  # i → i+1
    x = torch.randn(n, DIM, requires_grad=True)
    for referrals, reach in ((0, 1), (1, 2), (2, 4)):
        module = strong(layer(num_refresh=[()] * referrals, budgets=(8, 8, 8, 8)))
        out, _ = module(x, path)
        grad = torch.autograd.grad(out[-1].sum(), x)[0].abs().sum(-1) > 0
        assert grad.nonzero().min().item() == n - 1 - reach


def test_gradients_reach_every_parameter() -> None:
    module = strong(layer(num_refresh=[(), (3,)]))
    n = 10
    edges = SparseEdges.causal_window(n, 4)
    x, edges = module(torch.randn(n, DIM), edges, (edges.nearest(3),))
    (x.sum() + edges.weight.square().sum()).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_gradcheck() -> None:
    module = strong(GraphMachineLayer(4, 4, 2, 1, 3, num_edges=2, num_refresh=[(1,)], budgets=(2, 2, 2, 2))).double()
    n = 4
    edges = SparseEdges.causal_window(n, 2)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        out, state = module(x, edges, (edges.nearest(1),))
        return out, state.weight

    assert torch.autograd.gradcheck(run, torch.randn(n, 4, dtype=torch.float64, requires_grad=True))


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation returns."""

    size = 0

    def __torch_dispatch__(
        self, function: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def test_nothing_is_quadratic_in_the_number_of_tokens() -> None:
    n = 4096
    module, x = layer(num_refresh=[(), (2,)]), torch.randn(n, DIM)
    edges = SparseEdges.causal_window(n, 4)
    with LargestTensor() as largest:
        module(x, edges, (edges.nearest(2),))[0].sum().backward()
    assert largest.size < n * n / 16


def test_realignment_needs_equal_budgets() -> None:
    with pytest.raises(ValueError, match="s1 = s4"):
        layer(budgets=(4, 4, 4, 2))
    layer(budgets=(4, 4, 4, 2), realign=False)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import mix
from pyg_textgraph.ops.blocks import row_blocks

quick = settings(derandomize=True, deadline=None, max_examples=30)


def inputs(n: int, groups: list[tuple[int, int]], channels: int, dtype: torch.dtype, size: int = 7) -> tuple:
    edges = []
    for count, s in groups:
        weight = torch.rand(n, count, s, dtype=dtype) * (torch.rand(n, count, s) > 0.25)
        edges.append((torch.randint(size, weight.shape, dtype=torch.int32), weight.requires_grad_()))
    logits = torch.randn(n, sum(count for count, _ in groups), channels, dtype=dtype, requires_grad=True)
    return edges, logits, (torch.rand(n, channels, dtype=dtype) * 2 + 0.2).requires_grad_()


def dense(index: Tensor, weight: Tensor, size: int) -> Tensor:
    return weight.new_zeros(*index.shape[:-1], size).scatter_add(-1, index.long(), weight)


def with_grads(backend: str, edges: list, logits: Tensor, tau: Tensor | None, s: int, probe: Tensor) -> list[Tensor]:
    out = dense(*mix(edges, logits, s, tau, backend=backend), probe.size(-1))
    wanted = [*(w for _, w in edges), logits, *([] if tau is None else [tau])]
    return [out, *torch.autograd.grad((out * probe).sum(), wanted)]


@quick
@given(st.data())
def test_matches_reference(data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
    n, channels, s = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    edges, logits, tau = inputs(n, groups, channels, torch.float64)
    probe = torch.randn(n, channels, 7, dtype=torch.float64)
    heat = tau if data.draw(st.booleans()) else None
    expected = with_grads("reference", edges, logits, heat, s, probe)
    assert_close(with_grads("blocked", edges, logits, heat, s, probe), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    edges, logits, tau = inputs(50, [(4, 4), (3, 1)], 6, dtype, size=40)
    probe = torch.randn(50, 6, 40, dtype=dtype)
    expected = with_grads("reference", edges, logits, tau, 4, probe)
    monkeypatch.setattr("pyg_textgraph.ops.blocks.BLOCK", 700)
    assert len(row_blocks(50, 19 * 6, logits.device)) > 5
    assert_close(with_grads("blocked", edges, logits, tau, 4, probe), expected)


def test_temperature_acts_before_merging() -> None:
    edges = [(torch.tensor([[[0], [0], [1]]]), torch.ones(1, 3, 1, dtype=torch.float64))]
    share = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    for backend in ("reference", "blocked"):
        tau = torch.tensor([[2.0]], dtype=torch.float64)
        index, weight = mix(edges, share.log().view(1, 3, 1), 2, tau, backend=backend)
        got = dense(index, weight, 2).flatten()
        assert_close(got, torch.tensor([0.18, 0.16], dtype=torch.float64) / 0.34)  # after merging: .36/.52


def test_one_channel_with_room_for_everything_is_the_dense_average() -> None:
    torch.manual_seed(1)
    n = 9
    edges, logits, _ = inputs(n, [(5, 4)], 1, torch.float64, size=n)
    share = logits.softmax(-2).squeeze(-1)  # [n, e]
    expected = torch.einsum("ne,nej->nj", share, dense(*edges[0], n))
    out = dense(*mix(edges, logits, n), n).squeeze(1)
    assert_close(out, expected / expected.sum(-1, keepdim=True))


def test_extreme_temperatures_and_empty_tokens_stay_finite() -> None:
    edges, logits, _ = inputs(3, [(2, 3)], 2, torch.float32)
    with torch.no_grad():
        edges[0][1][1] = 0  # a token whose edges point nowhere
    for heat in (1e-6, 1.0, 1e4):
        tau = torch.full((3, 2), heat, requires_grad=True)
        index, weight = mix(edges, logits * 30, 2, tau)
        grads = torch.autograd.grad(weight.square().sum(), [edges[0][1], logits, tau])
        assert all(t.isfinite().all() for t in (weight, *grads))
        assert not weight[1].any()
        assert not index[1].any()


def test_gradcheck() -> None:
    torch.manual_seed(2)
    edges, logits, tau = inputs(3, [(3, 2), (2, 1)], 2, torch.float64)
    weights = [(w.detach() + 0.1).requires_grad_() for _, w in edges]

    def run(first: Tensor, second: Tensor, logits: Tensor, tau: Tensor) -> Tensor:
        return mix([(edges[0][0], first), (edges[1][0], second)], logits, 3, tau)[1]

    assert torch.autograd.gradcheck(run, (*weights, logits, tau))


def test_batches_are_rows() -> None:
    edges, logits, tau = inputs(6, [(2, 3)], 4, torch.float32)
    whole = mix(edges, logits, 2, tau)
    batched = mix(
        [(i.view(2, 3, 2, 3), w.view(2, 3, 2, 3)) for i, w in edges], logits.view(2, 3, 2, 4), 2, tau.view(2, 3, 4)
    )
    assert_close([t.flatten(0, 1) for t in batched], list(whole))


def test_logits_need_a_row_per_edge() -> None:
    edges, logits, _ = inputs(2, [(2, 1)], 3, torch.float32)
    with pytest.raises(ValueError, match="has 1 rows but there are 2 input edges"):
        mix(edges, logits[:, :1], 2)


def test_one_token_without_a_batch_and_no_token() -> None:
    index, weight, logits = torch.tensor([[0, 1], [1, 2]]).int(), torch.rand(2, 2).softmax(-1), torch.randn(2, 3)
    for backend in ("reference", "blocked"):
        one = mix([(index, weight)], logits, 2, backend=backend)
        batch = mix([(index[None], weight[None])], logits[None], 2, backend=backend)
        assert_close([x[None] for x in one], list(batch))
        none = mix([(index[None][:0], weight[None][:0])], logits[None][:0], 2, backend=backend)
        assert [x.shape for x in none] == [(0, 3, 2)] * 2


@pytest.mark.parametrize("backend", ["reference", "blocked"])
def test_a_temperature_of_zero_makes_all_equal(backend: str) -> None:
    edges = [(torch.tensor([[[0, 0], [1, 2]]]), torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]))]
    index, weight = mix(edges, torch.zeros(1, 2, 1), 3, torch.zeros(1, 1), backend=backend)
    assert index.tolist() == [[[0, 1, 2]]]
    assert_close(weight, torch.full((1, 1, 3), 1 / 3))


@pytest.mark.parametrize("gap", [10.0, 50.0, 200.0])
def test_small_shares_count_where_the_temperature_lifts_them(gap: float) -> None:
    edges = [(torch.tensor([[[0], [1]]]), torch.ones(1, 2, 1, dtype=torch.float64))]
    logits, tau = torch.tensor([[[0.0], [-gap]]], dtype=torch.float64), torch.full((1, 1), 0.01, dtype=torch.float64)
    expected = torch.tensor([0.0, -gap * 0.01], dtype=torch.float64).softmax(0)
    for backend in ("reference", "blocked"):
        assert_close(mix(edges, logits, 2, tau, backend=backend)[1][0, 0], expected)
    assert mix(edges, logits.float(), 2, tau.float(), backend="blocked")[1][0, 0, 1] > 0


def test_empty_groups_are_refused() -> None:
    edges = [(torch.zeros(1, 2, 0, dtype=torch.long), torch.zeros(1, 2, 0))]
    with pytest.raises(ValueError, match="a group without edges or pointers"):
        mix(edges, torch.zeros(1, 2, 1), 1)

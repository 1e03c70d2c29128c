import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import sparsify, temper
from pyg_textgraph.ops.sparsify.select import heaviest

BACKENDS = ["reference", "blocked"]
quick = settings(derandomize=True, deadline=None, max_examples=40)


def dense(index: Tensor, weight: Tensor, size: int) -> Tensor:
    return weight.new_zeros(*index.shape[:-1], size).scatter_add(-1, index.long(), weight)


@pytest.mark.parametrize("backend", BACKENDS)
def test_worked_example(backend: str) -> None:
    index, weight = sparsify(torch.tensor([0, 3, 2, 3]), torch.tensor([0.2, 0.3, 0.4, 0.1]), 2, backend=backend)
    assert dict(zip(index.tolist(), weight.tolist(), strict=True)) == pytest.approx({2: 0.5, 3: 0.5})
    assert index.tolist()[0] == 3  # .3 + .1 reaches .4 and comes first by position


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_keep_the_first_position(backend: str, dtype: torch.dtype) -> None:
    index, weight = sparsify(torch.tensor([5, 1, 4, 2]), torch.full((4,), 0.25, dtype=dtype), 2, backend=backend)
    assert index.tolist() == [5, 1]
    assert weight.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_rows_stay_zero_and_missing_slots_are_empty(backend: str) -> None:
    index, weight = sparsify(torch.tensor([[7, 8], [7, 7]]), torch.tensor([[0.0, 0.0], [0.5, 0.5]]), 3, backend=backend)
    assert index.tolist() == [[0, 0, 0], [7, 0, 0]]
    assert weight.tolist() == [[0, 0, 0], [1, 0, 0]]


@quick
@given(st.data())
def test_matches_a_dense_vector(data: st.DataObject) -> None:
    size, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    m, s = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    index = torch.randint(size, (rows, m), dtype=torch.int32)
    weight = torch.rand(rows, m, dtype=torch.float64) * (torch.rand(rows, m) > 0.3)
    whole = dense(index, weight, size)
    kept = whole.topk(min(s, size), -1)
    expected = torch.zeros_like(whole).scatter(-1, kept.indices, kept.values)
    expected = expected / expected.sum(-1, keepdim=True).clamp(min=1e-8)
    for backend in BACKENDS:
        out = sparsify(index, weight, s, backend=backend)
        assert out[0].dtype == torch.int32
        assert_close(dense(*out, size), expected)
        assert bool((out[1].diff(dim=-1) <= 0).all())  # heaviest first
    assert_close(dense(*sparsify(index, weight.float(), s), size), expected.float())


@quick
@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 1000))
def test_backends_choose_the_same_slots(m: int, s: int, seed: int) -> None:
    torch.manual_seed(seed)
    index, weight = torch.randint(6, (8, m)), torch.randint(4, (8, m)).float() / 8  # exact sums, many ties
    expected, actual = (sparsify(index, weight, s, backend=backend) for backend in BACKENDS)
    assert_close(actual, expected, rtol=0, atol=0)


def test_gradient_passes_through_kept_weights_only() -> None:
    index = torch.tensor([[0, 3, 2, 3, 1], [1, 1, 1, 0, 0]])
    weight = torch.tensor([[0.2, 0.35, 0.4, 0.1, 0.05], [0.1, 0.2, 0.3, 0.2, 0.1]], dtype=torch.float64)
    weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: sparsify(index, w, 2)[1], weight)
    grad = torch.autograd.grad(sparsify(index, weight, 2)[1][0, 0], weight)[0]
    assert grad[0, [0, 4]].tolist() == [0, 0]
    assert grad[0, 1] == grad[0, 3] != 0


def test_gradients_match_the_reference() -> None:
    torch.manual_seed(0)
    index, weight = torch.randint(6, (4, 3, 10)), torch.rand(4, 3, 10, dtype=torch.float64, requires_grad=True)
    probe = torch.randn(4, 3, 6, dtype=torch.float64)
    grads = [
        torch.autograd.grad((dense(*sparsify(index, weight, 3, backend=b), 6) * probe).sum(), weight) for b in BACKENDS
    ]
    assert_close(*grads)


@quick
@given(st.integers(1, 70), st.integers(1, 16), st.integers(0, 1), st.integers(0, 1000))
def test_heaviest_is_a_stable_sort(m: int, s: int, dim: int, seed: int) -> None:
    torch.manual_seed(seed)
    weight = (torch.rand(m, m) * 50).round() if seed % 2 else torch.rand(m, m) * 1e-40  # ties, or denormal numbers
    value, position = heaviest(weight, s, dim)
    expected = weight.sort(dim=dim, descending=True, stable=True)
    n = min(s, m)
    assert_close(value.narrow(dim, 0, n), expected.values.narrow(dim, 0, n), rtol=0, atol=0)
    assert_close(position.narrow(dim, 0, n), expected.indices.narrow(dim, 0, n))
    assert not value.narrow(dim, n, s - n).any()


def test_temperature_one_normalizes_and_zeros_stay_zero() -> None:
    weight = torch.tensor([[0.2, 0.0, 0.6], [0.0, 0.0, 0.0]])
    assert_close(temper(weight, torch.ones(2)), torch.tensor([[0.25, 0.0, 0.75], [0.0, 0.0, 0.0]]))
    assert_close(temper(weight, torch.full((2,), 2.0))[0], torch.tensor([0.1, 0.0, 0.9]))
    hot = temper(weight, torch.full((2,), 1e-6))[0]
    assert hot[1] == 0
    assert_close(hot[[0, 2]], torch.tensor([0.5, 0.5]), atol=1e-5, rtol=0)
    assert_close(temper(weight, torch.full((2,), 1e4))[0], torch.tensor([0.0, 0.0, 1.0]))


def test_temperature_gradient() -> None:
    weight = torch.tensor([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]], dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([0.7, 2.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(temper, (weight, tau))
    zero = torch.zeros(1, 3, requires_grad=True)
    temper(zero, torch.ones(1)).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("light", [1e-21, 1e-37, 1e-45])
def test_the_lightest_weights_count_as_zero_and_have_no_gradient(light: float) -> None:
    weight = torch.tensor([0.25, light, 0.75], requires_grad=True)
    out = temper(weight, torch.tensor(0.1))
    assert_close(out, temper(torch.tensor([0.25, 0.0, 0.75]), torch.tensor(0.1)))
    (gradient,) = torch.autograd.grad(out[:2].sum(), weight)
    assert gradient[1] == 0
    assert gradient.isfinite().all()


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="'weight' is \\(3,\\)"):
        sparsify(torch.zeros(2, dtype=torch.long), torch.zeros(3), 1)
    with pytest.raises(ValueError, match="'s' is 0"):
        sparsify(torch.zeros(2, dtype=torch.long), torch.zeros(2), 0)
    with pytest.raises(ValueError, match="lists of 0 pointers"):
        sparsify(torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0), 1)


def test_second_derivatives_are_refused() -> None:
    weight = torch.tensor([[0.2, 0.3, 0.4, 0.1]], requires_grad=True)
    out = sparsify(torch.arange(4)[None], weight, 2, backend="blocked")[1]
    (first,) = torch.autograd.grad(out[0, 0], weight, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(first.sum(), weight)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import refer


def dense(index: Tensor, weight: Tensor, size: int) -> Tensor:
    return weight.new_zeros(*index.shape[:-1], size).scatter_add(-1, index.long(), weight)


def legs(n: int, k: int, s2: int, s3: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    out = []
    for s in (s2, s3):
        weight = torch.rand(n, k, s, dtype=dtype) * (torch.rand(n, k, s) > 0.2)
        out += [torch.randint(n, (n, k, s), dtype=torch.int32), weight.requires_grad_()]
    return tuple(out)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    st.integers(1, 12), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(0, 99)
)
def test_matches_the_dense_product(n: int, k: int, s2: int, s3: int, s: int, seed: int) -> None:
    torch.manual_seed(seed)
    args = legs(n, k, s2, s3)
    product = torch.einsum("nkm,mkj->nkj", dense(*args[:2], n), dense(*args[2:], n))
    kept = torch.zeros_like(product).scatter(-1, product.topk(min(s, n), -1).indices, 1)
    expected = product * kept * (product > 0)
    expected = expected / expected.sum(-1, keepdim=True).clamp(min=1e-8)
    probe = torch.randn(n, k, n, dtype=torch.float64)
    for backend in ("reference", "gathered"):
        out = dense(*refer(*args, s, backend=backend), n)
        assert_close(out, expected)
        actual = torch.autograd.grad((out * probe).sum(), (args[1], args[3]))
        assert_close(actual, torch.autograd.grad((expected * probe).sum(), (args[1], args[3]), retain_graph=True))


def test_room_for_everything_is_the_dense_power() -> None:
    torch.manual_seed(0)
    n = 7
    index = torch.arange(n).expand(n, 1, n).int()
    weight = torch.rand(n, 1, n, dtype=torch.float64).softmax(-1)
    matrix = dense(index, weight, n).squeeze(1)
    state = (index, weight)
    for power in (2, 3, 4):
        state = refer(*state, index, weight, n)
        assert_close(dense(*state, n).squeeze(1), torch.linalg.matrix_power(matrix, power))


def test_gradcheck() -> None:
    torch.manual_seed(3)
    index, weight, next_index, next_weight = legs(5, 2, 3, 2)
    assert torch.autograd.gradcheck(
        lambda a, b: refer(index, a + 0.1, next_index, b + 0.1, 3)[1], (weight, next_weight)
    )


def test_sequences_of_a_batch_are_separate_and_may_have_fewer_queries() -> None:
    torch.manual_seed(4)
    first, second = legs(6, 3, 2, 2, torch.float32), legs(6, 3, 2, 2, torch.float32)
    batched = refer(*(torch.stack(pair) for pair in zip(first, second, strict=True)), 3)
    assert_close([t[1] for t in batched], list(refer(*second, 3)))
    late = refer(second[0][4:], second[1][4:], second[2], second[3], 3)
    assert_close([t[1, 4:] for t in batched], list(late))


def test_legs_must_match() -> None:
    a, w, b, v = legs(4, 2, 2, 2)
    with pytest.raises(ValueError, match="do not match"):
        refer(a, w, b[:, :1], v[:, :1], 2)

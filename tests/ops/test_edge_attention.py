import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import edge_attention


def inputs(n: int, size: int, heads: int, groups: int, dim: int, s: int) -> tuple[Tensor, ...]:
    torch.manual_seed(n + 10 * size)
    index = torch.stack([torch.randperm(size)[torch.arange(s) % size] for _ in range(n * groups)]).view(n, groups, s)
    weight = torch.rand(n, groups, s, dtype=torch.float64) * (torch.rand(n, groups, s) > 0.3)
    weight = weight * (torch.arange(s) < size)  # pointers of one list are different
    q, k, v = (torch.randn(m, h, dim, dtype=torch.float64) for m, h in ((n, heads), (size, groups), (size, groups)))
    tau = torch.rand(n, heads, dtype=torch.float64) + 0.5, torch.rand(n, groups, dtype=torch.float64) + 0.5
    return q, k, v, index.int(), weight, *tau


def masked(q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node: Tensor, edge: Tensor) -> Tensor:
    """The same over a dense matrix of weights."""
    n, heads, dim = q.shape
    whole = weight.new_zeros(n, k.size(1), len(k)).scatter_add(-1, index.long(), weight)
    whole, edge, k, v = (t.repeat_interleave(heads // k.size(1), 1) for t in (whole, edge, k, v))
    score = torch.einsum("nhd,mhd->nhm", q, k) * dim**-0.5 * node.unsqueeze(-1)
    score = score + whole.clamp(min=1e-300).log() * edge.unsqueeze(-1)
    attention = score.masked_fill(whole == 0, -torch.inf).softmax(-1).nan_to_num(0)
    return torch.einsum("nhm,mhd->nhd", attention, v)


shapes = st.tuples(
    st.integers(1, 7), st.integers(1, 9), st.integers(1, 3), st.integers(1, 2), st.integers(1, 5), st.integers(1, 4)
)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(shapes)
def test_matches_dense_attention_and_reference(shape: tuple[int, ...]) -> None:
    n, size, repeat, groups, dim, s = shape
    args = inputs(n, size, repeat * groups, groups, dim, s)
    tensors = [t.requires_grad_() for i, t in enumerate(args) if i != 3]
    torch.manual_seed(0)
    probes = torch.randn(n, repeat * groups, dim).double(), torch.randn(n, repeat * groups, s).double()
    results = []
    for backend in ("reference", "blocked"):
        out, attention = edge_attention(*args, backend=backend)
        assert_close(out, masked(*args))
        assert not attention.masked_select(args[4].repeat_interleave(repeat, 1) == 0).any()
        loss = (out * probes[0]).sum() + (attention * probes[1]).sum()
        results.append([out, attention, *torch.autograd.grad(loss, tensors)])
    assert_close(results[1], results[0])


def test_all_keys_with_equal_weights_is_plain_attention() -> None:
    torch.manual_seed(0)
    n, heads, dim = 6, 2, 4
    q, k, v = (torch.randn(n, heads, dim) for _ in range(3))
    index = torch.arange(n).expand(n, heads, n)
    out, _ = edge_attention(
        q, k, v, index, torch.full((n, heads, n), 1 / n), torch.ones(n, heads), torch.ones(n, heads)
    )
    plain = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)))
    assert_close(out, plain.transpose(0, 1))


def test_gradcheck() -> None:
    q, k, v, index, weight, node, edge = inputs(4, 5, 4, 2, 3, 3)
    args = [t.requires_grad_() for t in (q, k, v, weight.clamp(min=0.1), node, edge)]

    def run(q: Tensor, k: Tensor, v: Tensor, weight: Tensor, node: Tensor, edge: Tensor) -> tuple[Tensor, Tensor]:
        return edge_attention(q, k, v, index, weight, node, edge)

    assert torch.autograd.gradcheck(run, args)


@pytest.mark.parametrize("backend", ["reference", "blocked"])
def test_a_row_without_pointers_is_zero(backend: str) -> None:
    args = [*inputs(3, 4, 2, 1, 4, 2)]
    args[4] = torch.zeros_like(args[4]).requires_grad_()
    args[0].requires_grad_()
    out, attention = edge_attention(*args, backend=backend)
    assert not out.any()
    assert not attention.any()
    grads = torch.autograd.grad(out.sum() + attention.sum(), [args[0], args[4]])
    assert all(g.isfinite().all() for g in grads)


def test_batches_are_separate() -> None:
    first, second = inputs(5, 5, 2, 1, 4, 3), inputs(5, 5, 2, 1, 4, 3)
    second = tuple(t.flip(0) if i != 3 else t for i, t in enumerate(second))
    batched = edge_attention(*(torch.stack(pair) for pair in zip(first, second, strict=True)))
    assert_close([t[1] for t in batched], list(edge_attention(*second)))


def test_groups_must_match() -> None:
    q, k, v, index, weight, node, edge = inputs(3, 3, 4, 2, 4, 2)
    with pytest.raises(ValueError, match="3 heads, 2 key groups and 2 pointer groups"):
        edge_attention(q[:, :3], k, v, index, weight, node[:, :3], edge)


def test_second_derivatives_are_refused() -> None:
    args = [x.requires_grad_() if x.is_floating_point() else x for x in inputs(3, 3, 2, 1, 4, 2)]
    out = edge_attention(*args, backend="blocked")[0].square().sum()  # type: ignore[arg-type]
    (first,) = torch.autograd.grad(out, args[1], create_graph=True)
    with pytest.raises(RuntimeError, match=r"differentiate twice|does not require grad"):
        (out + first.square().sum()).backward()


def test_empty_lists_are_refused() -> None:
    q, k, v, index, weight, *tau = inputs(3, 3, 2, 1, 4, 2)
    with pytest.raises(ValueError, match="lists of 0 pointers"):
        edge_attention(q, k, v, index[..., :0], weight[..., :0], *tau)

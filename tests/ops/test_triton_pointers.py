"""The Triton kernels of ops on pointers against the references: on a GPU, or with TRITON_INTERPRET=1 (`make kernels`).

Few shapes on purpose: each is compiled once where there is a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from pyg_textgraph.ops import edge_attention
from pyg_textgraph.ops.reverse_index import reverse_index

pytestmark = pytest.mark.kernels

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# the interpreter truncates to bfloat16
LOW_PRECISION = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}

Op = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fresh memory holds NaN, and the largest number where it holds integers."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert bool(torch.empty(3, device=DEVICE).isnan().all())
    yield
    torch.use_deterministic_algorithms(False)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def random_weight(*shape: int, seed: int = 0) -> Tensor:
    """A third of the slots is empty; so is all that belongs to the last token."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.rand(shape, generator=rng) * (torch.rand(shape, generator=rng) > 0.3)
    weight[..., -1:, :, :] = 0
    return weight.to(DEVICE)


def random_index(size: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32).to(DEVICE)


def with_grads(op: Callable[..., tuple[Tensor, ...]], *args: Tensor) -> list[Tensor]:
    """Outputs, and the gradients of a random but fixed projection of them to all arguments of floats."""
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in args]
    out = op(*leaves)
    loss = sum((x * random(*x.shape, seed=7).to(x)).sum() for x in out if x.is_floating_point())
    grads = torch.autograd.grad(loss, [x for x in leaves if x.requires_grad])  # type: ignore[arg-type]
    return [*(x.detach() for x in out), *grads]


def double(args: tuple[Tensor, ...]) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in args]


def attention_inputs(n: int, size: int, heads: int, groups: int, dim: int, s: int, *batch: int) -> tuple[Tensor, ...]:
    q, k, v = (random(*batch, m, h, dim, seed=i) for i, (m, h) in enumerate([(n, heads), (size, groups)] * 2) if i < 3)
    v = random(*batch, size, groups, dim, seed=3)
    tau = (random(*batch, n, h, seed=h).sigmoid() + 0.5 for h in (heads, groups))
    index = random_index(size, *batch, n, groups, s)
    return q, k, v, index, random_weight(*batch, n, groups, s), *tau


def each_sequence(args: tuple[Tensor, ...], op: Op) -> tuple[Tensor, ...]:
    """What an op without batches says about a batch."""
    return tuple(map(torch.stack, zip(*(op(*x) for x in zip(*args, strict=True)), strict=True)))  # type: ignore[arg-type]


attend = partial(edge_attention, backend="triton")
ATTENTION_SHAPES = {
    "shared keys": (5, 7, 6, 2, 8, 4),
    "odd sizes": (9, 4, 2, 2, 5, 3),
    "one pointer": (3, 3, 1, 1, 16, 1),
    "many pointers": (2, 20, 2, 1, 4, 40),
}


@pytest.mark.parametrize("name", ATTENTION_SHAPES)
def test_attention_matches_reference(name: str) -> None:
    args = attention_inputs(*ATTENTION_SHAPES[name])
    expected = with_grads(partial(edge_attention, backend="reference"), *double(args))
    actual = with_grads(attend, *args)
    names = ("out", "attention", "dq", "dk", "dv", "dweight", "dnode", "dedge")
    for what, x, y in zip(names, actual, expected, strict=True):
        assert_close(x.double(), y, **TOLERANCE, msg=lambda text, what=what: f"{what}: {text}")
    assert not actual[0][-1].any()  # the last token has no pointers
    assert all(torch.equal(x, y) for x, y in zip(with_grads(attend, *args), actual, strict=True))


def test_attention_of_a_batch_in_fewer_queries_than_keys() -> None:
    args = attention_inputs(3, 5, 2, 1, 4, 2, 2, 2)
    expected = [x.flatten(0, 1) for x in with_grads(partial(edge_attention, backend="blocked"), *args)]
    actual = with_grads(attend, *args)
    assert actual[0].shape == (2, 2, 3, 2, 4)
    for x, y in zip(actual, expected, strict=True):
        assert_close(x.flatten(0, 1), y, **TOLERANCE)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_attention_in_low_precision_adds_up_in_float32(dtype: torch.dtype) -> None:
    args = attention_inputs(*ATTENTION_SHAPES["shared keys"])
    low = [x.to(dtype) for x in args[:3]]
    low = [*low, *args[3:5], args[5].to(dtype), args[6]]
    expected, actual = with_grads(partial(edge_attention, backend="reference"), *double(low)), with_grads(attend, *low)
    assert [x.dtype for x in actual] == [dtype, torch.float32, *[dtype] * 3, torch.float32, dtype, torch.float32]
    rounding = torch.finfo(dtype).eps
    for x, y in zip(actual, expected, strict=True):
        assert_close(x.double(), y, atol=rounding, rtol=rounding)


def test_attention_to_one_token_by_all_and_to_nobody() -> None:
    """Many pointers to one row of keys, in whole chunks and around them; none to others, empty ones included."""
    q, k, v, index, weight, *tau = attention_inputs(150, 3, 2, 1, 4, 2)
    index[:, :, 0] = torch.where(torch.arange(150, device=DEVICE).unsqueeze(-1) < 40, 1, 2)
    index[:, :, 1], weight[:, :, 1] = 0, 0
    weight[:-1, :, 0] += 0.1
    args = q, k, v, index, weight, *tau
    expected = with_grads(partial(edge_attention, backend="reference"), *double(args))
    actual = with_grads(attend, *args)
    for x, y in zip(actual, expected, strict=True):
        assert_close(x.double(), y, **TOLERANCE)
    assert not actual[3][0].any()
    assert not actual[4][0].any()


def test_attention_without_tokens() -> None:
    out, attention, dq, dk, *_ = with_grads(attend, *attention_inputs(0, 3, 2, 1, 4, 2))
    assert (out.shape, attention.shape, dq.shape) == ((0, 2, 4), (0, 2, 2), (0, 2, 4))
    assert bool((dk == 0).all())


def test_attention_with_the_smallest_weights_is_finite() -> None:
    q, k, v, index, weight, *tau = attention_inputs(*ATTENTION_SHAPES["odd sizes"])
    weight[:4] *= 1e-42
    assert all(bool(x.isfinite().all()) for x in with_grads(attend, q, k, v, index, weight, *tau))


def test_attention_to_no_token_of_the_sequence_is_not_a_number() -> None:
    q, k, v, index, weight, *tau = attention_inputs(*ATTENTION_SHAPES["odd sizes"])
    weight[:2] = 1
    for wrong in (4, -1, 2**30):
        index[0, 0, 1] = wrong
        out, _ = attend(q, k, v, index, weight, *tau)
        assert bool(out[0, 0].isnan().all())
        assert bool(out[1].isfinite().all())


def test_attention_is_an_ordinary_op() -> None:
    """For torch.compile, checkpointing and views."""
    args = attention_inputs(*ATTENTION_SHAPES["odd sizes"])
    leaves = [x.requires_grad_(x.is_floating_point()) for x in args]
    torch.library.opcheck(torch.ops.pyg_textgraph.edge_attention.default, tuple(x[None] for x in leaves))
    plain = with_grads(attend, *args)
    compiled = with_grads(torch.compile(attend, backend="aot_eager", fullgraph=True), *args)
    again = with_grads(lambda *x: checkpoint(attend, *x, use_reentrant=False), *args)
    turned = with_grads(attend, *(x.detach().mT.contiguous().mT for x in args))
    for other in (compiled, again, turned):
        assert all(torch.equal(x, y) for x, y in zip(other, plain, strict=True))


def test_attention_says_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    args = attention_inputs(2, 3, 2, 1, 4, 2)
    with pytest.raises(ValueError, match=r"takes float16, bfloat16 and float32, 'q' is torch\.float64; use 'blocked'"):
        attend(*double(args))
    with pytest.raises(ValueError, match="at most 256 channels per head, 'q' has 300"):
        attend(*attention_inputs(1, 1, 1, 1, 300, 1))
    with pytest.raises(ValueError, match="at most 64 pointers per list for heads of 100 channels, got 65"):
        attend(*attention_inputs(1, 1, 1, 1, 100, 65))
    with pytest.raises(
        ValueError, match="'backend' is 'cuda', expected one of 'auto', 'blocked', 'reference', 'triton'"
    ):
        edge_attention(*args, backend="cuda")  # type: ignore[arg-type]
    monkeypatch.setattr(import_module("pyg_textgraph.ops.triton_limits"), "INTERPRETED", False)
    with pytest.raises(ValueError, match="needs tensors on a CUDA device, 'q' is on cpu; use 'blocked'"):
        attend(*(x.cpu() for x in args))


def test_reverse_index_keeps_the_order_of_pointers() -> None:
    row = torch.tensor([2, 0, 5, 2, 0, 5, 2], dtype=torch.int32, device=DEVICE)
    pointer, named, start = reverse_index(row, 5)
    assert pointer[:5].tolist() == [1, 4, 0, 3, 6]
    assert named.tolist() == [0, 0, 2, 2, 2, 5, 5]
    assert start.tolist() == [0, 2, 2, 5, 5, 5]
    assert pointer.dtype == named.dtype == start.dtype == torch.int32

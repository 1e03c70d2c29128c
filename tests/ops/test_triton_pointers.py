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

from pyg_textgraph.ops import edge_attention, mix, refer, sparsify
from pyg_textgraph.ops.reverse_index import reverse_index

pytestmark = pytest.mark.kernels

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# the interpreter truncates to bfloat16
LOW_PRECISION = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}


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


def registered(op: str) -> torch._ops.OpOverload:
    import_module(f"pyg_textgraph.ops.{op}.triton")
    return getattr(torch.ops.pyg_textgraph, op).default


def double(args: tuple[Tensor, ...]) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in args]


def attention_inputs(n: int, size: int, heads: int, groups: int, dim: int, s: int, *batch: int) -> tuple[Tensor, ...]:
    q, k, v = (random(*batch, m, h, dim, seed=i) for i, (m, h) in enumerate([(n, heads), (size, groups)] * 2) if i < 3)
    v = random(*batch, size, groups, dim, seed=3)
    tau = (random(*batch, n, h, seed=h).sigmoid() + 0.5 for h in (heads, groups))
    index = random_index(size, *batch, n, groups, s)
    return q, k, v, index, random_weight(*batch, n, groups, s), *tau


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
    torch.library.opcheck(registered("edge_attention"), tuple(x[None] for x in leaves))
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


def assert_same_pointers(actual: list[Tensor], expected: list[Tensor], tolerance: dict[str, float]) -> None:
    """Index, weight and gradients."""
    assert torch.equal(actual[0], expected[0])
    for x, y in zip(actual[1:], expected[1:], strict=True):
        assert_close(x.double(), y.double(), **tolerance)


# rows, candidates, s
LISTS = {"short": (9, 6, 3), "one": (3, 1, 2), "more slots than candidates": (3, 5, 7), "longest": (2, 64, 4)}
sparse = partial(sparsify, backend="triton")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("ties", [False, True])
def test_sparsify_matches_reference(name: str, ties: bool) -> None:
    rows, m, s = LISTS[name]
    index, weight = random_index(max(2, m // 2), rows, m), random_weight(rows, 1, m).view(rows, m)
    if ties:
        weight = (weight * 4).ceil() / 8  # sums are exact
    expected = with_grads(partial(sparsify, s=s, backend="reference"), index, weight.double())
    actual = with_grads(partial(sparse, s=s), index, weight)
    assert actual[0].dtype == torch.int32
    assert not actual[1][-1].any()  # an all-zero row
    assert_same_pointers(actual, expected, TOLERANCE)


refer_in_registers = partial(refer, backend="triton")
# tokens, next tokens, channels, s2, s3, s
LEGS = {"four": (6, 6, 3, 4, 4, 4), "odd": (5, 7, 2, 3, 2, 3), "one": (3, 2, 1, 1, 1, 1), "wide": (3, 9, 1, 8, 8, 12)}


def leg_inputs(n: int, size: int, k: int, s2: int, s3: int) -> tuple[Tensor, ...]:
    first = random_index(size, n, k, s2), random_weight(n, k, s2)
    return *first, random_index(size, size, k, s3, seed=1), random_weight(size, k, s3, seed=1)


@pytest.mark.parametrize("name", LEGS)
def test_refer_matches_products_by_hand(name: str) -> None:
    """The dense reference settles ties by index; these by position."""
    *shape, s = LEGS[name]
    args = leg_inputs(*shape)
    expected = with_grads(partial(refer, s=s, backend="gathered"), *double(args))
    actual = with_grads(partial(refer_in_registers, s=s), *args)
    assert not actual[1][-1].any()
    assert_same_pointers(actual, expected, TOLERANCE)
    again = with_grads(partial(refer_in_registers, s=s), *args)
    assert all(torch.equal(x, y) for x, y in zip(again, actual, strict=True))


# tokens, groups of (edges, pointers), channels, s
MIXES = {
    "one group": (5, [(6, 4)], 5, 4), "refresh": (4, [(4, 4), (3, 1)], 3, 2), "one pointer": (3, [(1, 1)], 1, 1),
    "blocks of channels": (2, [(20, 4), (5, 4), (30, 1)], 20, 3),
}  # fmt: skip


def mix_inputs(n: int, groups: list[tuple[int, int]], channels: int, size: int) -> tuple[Tensor, ...]:
    """Logits, temperatures, then index and weight of each group."""
    edges = [
        x
        for i, (e, s) in enumerate(groups)
        for x in (random_index(size, n, e, s, seed=i), random_weight(n, e, s, seed=i))
    ]
    heat = random(n, channels, seed=5).sigmoid() * 2 + 0.2
    return random(n, sum(e for e, _ in groups), channels), heat, *edges


def mixed(backend: str, s: int, logits: Tensor, heat: Tensor | None, *edges: Tensor) -> tuple[Tensor, Tensor]:
    return mix([*zip(edges[::2], edges[1::2], strict=True)], logits, s, heat, backend=backend)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MIXES)
def test_mix_matches_reference(name: str) -> None:
    n, groups, channels, s = MIXES[name]
    args = mix_inputs(n, groups, channels, size=9)
    expected = with_grads(partial(mixed, "reference", s), *double(args))
    actual = with_grads(partial(mixed, "triton", s), *args)
    assert not actual[1][-1].any()
    assert_same_pointers(actual, expected, TOLERANCE)
    again = with_grads(partial(mixed, "triton", s), *args)
    assert all(torch.equal(x, y) for x, y in zip(again, actual, strict=True))


def test_mix_without_temperature_settles_ties_by_position() -> None:
    index = torch.tensor([[[5, 1], [3, 5]], [[2, 4], [0, 0]]], dtype=torch.int32, device=DEVICE)
    weight = torch.tensor([[[0.25, 0.5], [0.5, 0.25]], [[0.5, 0.5], [0.0, 0.0]]], device=DEVICE)
    args = torch.zeros(2, 2, 1, device=DEVICE), index, weight
    backends = [partial(lambda b, x, *edges: mixed(b, 3, x, None, *edges), b) for b in ("triton", "reference")]
    actual, expected = (with_grads(op, *args) for op in backends)
    assert actual[0].tolist() == [[[5, 1, 3]], [[2, 4, 0]]]
    assert_same_pointers(actual, expected, TOLERANCE)


def test_mix_survives_extreme_temperatures() -> None:
    logits, heat, index, weight = mix_inputs(*MIXES["one group"][:3], size=9)
    for value in (1e-6, 1e4):
        results = with_grads(partial(mixed, "triton", 4), logits * 30, torch.full_like(heat, value), index, weight)
        assert all(bool(x.isfinite().all()) for x in results)


def test_refer_equals_the_dense_product() -> None:
    n, k, s = 7, 2, 3
    index, _, next_index, _ = leg_inputs(n, n, k, 3, 2)
    weights = random_weight(n, k, 3, seed=3), random_weight(n, k, 2, seed=4)

    def dense(backend: str, first: Tensor, second: Tensor) -> tuple[Tensor]:
        kept, weight = refer(index, first, next_index, second, s, backend=backend)  # type: ignore[arg-type]
        return (weight.new_zeros(n, k, n).scatter_add(-1, kept.long(), weight),)

    expected = with_grads(partial(dense, "reference"), *double(weights))
    for x, y in zip(with_grads(partial(dense, "triton"), *weights), expected, strict=True):
        assert_close(x.double(), y, **TOLERANCE)


def test_refer_to_one_token_by_all() -> None:
    """Whole chunks of pointers to one list, and some around them; batches are separate."""
    index, weight, next_index, next_weight = leg_inputs(100, 4, 1, 2, 2)
    index[:40, :, 0], index[40:, :, 0] = 1, 2
    args = [x.view(2, -1, *x.shape[1:]) for x in (index, weight, next_index, next_weight)]
    args[0] %= 2
    expected = with_grads(partial(refer, s=2, backend="gathered"), *double(tuple(args)))
    assert_same_pointers(with_grads(partial(refer_in_registers, s=2), *args), expected, TOLERANCE)


def test_pointers_of_no_token_are_not_numbers() -> None:
    args = leg_inputs(*LEGS["odd"][:5])
    args[1][0] = 1
    for wrong in (7, -1, 2**30):
        args[0][0, 0, 1] = wrong
        _, weight = refer_in_registers(*args, s=3)
        assert bool(weight[0, 0].isnan().any())
        assert bool(weight[1:].isfinite().all())


def test_damaged_weights_do_not_vanish() -> None:
    logits, heat, index, weight = mix_inputs(*MIXES["one group"][:3], size=9)
    weight[0, 0, 0] = torch.nan
    assert bool(mixed("triton", 4, logits, heat, index, weight)[1][0].isnan().any())
    rows, damaged = random_index(4, 3, 6), random_weight(3, 1, 6).view(3, 6)
    damaged[0, 2] = -torch.nan
    assert bool(sparse(rows, damaged, 3)[1][0].isnan().any())


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_pointers_in_low_precision_add_up_in_float32(dtype: torch.dtype) -> None:
    rounding = torch.finfo(dtype).eps
    tolerance = {"atol": 4 * rounding, "rtol": 4 * rounding}
    index, weight, next_index, next_weight = leg_inputs(*LEGS["odd"][:5])
    low = index, weight.to(dtype), next_index, next_weight.to(dtype)
    actual = with_grads(partial(refer_in_registers, s=3), *low)
    expected = with_grads(partial(refer, s=3, backend="gathered"), *double(low))
    assert [x.dtype for x in actual] == [torch.int32, *[dtype] * 3]
    assert_same_pointers(actual, expected, tolerance)
    logits, heat, index, weight = mix_inputs(*MIXES["one group"][:3], size=9)
    low = logits.to(dtype), heat.to(dtype), index, weight.to(dtype)
    actual, expected = (
        with_grads(partial(mixed, "triton", 4), *low),
        with_grads(partial(mixed, "reference", 4), *double(low)),
    )
    assert [x.dtype for x in actual] == [torch.int32, *[dtype] * 4]
    assert_same_pointers(actual, expected, tolerance)


def test_pointers_of_nothing() -> None:
    for out in (
        sparse(random_index(4, 0, 5), random_weight(0, 1, 5).view(0, 5), 2),
        refer_in_registers(*leg_inputs(0, 3, 2, 2, 2), s=2),
        mixed("triton", 2, *mix_inputs(0, [(3, 2)], 4, size=5)),
    ):
        assert len(out[0]) == len(out[1]) == 0
    args = leg_inputs(0, 3, 2, 2, 2)
    assert not with_grads(partial(refer_in_registers, s=2), *args)[3].any()  # of next pointers that nobody follows


def test_pointers_are_ordinary_ops() -> None:
    refer_op, mix_op, sparsify_op = (registered(name) for name in ("refer", "mix", "sparsify"))
    # opcheck's own comparison of gradients cannot add up integer outputs
    check = partial(torch.library.opcheck, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    floats = lambda args: tuple(x.requires_grad_(x.is_floating_point()) for x in args)  # noqa: E731
    check(refer_op, (*floats(x[None] for x in leg_inputs(*LEGS["one"][:5])), 1))
    logits, heat, index, weight = floats(mix_inputs(3, [(2, 2)], 2, size=3))
    for h in (heat, None):
        check(mix_op, (index.flatten(1), weight.flatten(1), logits, h, 2, [2], [2]))
    check(sparsify_op, (*floats((random_index(3, 3, 4), random_weight(3, 1, 4).view(3, 4))), 2))

    def all_of_them(logits: Tensor, heat: Tensor, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        legs = mixed("triton", 2, logits, heat, index, weight)
        return sparse(*refer_in_registers(*legs, *legs, s=3), s=2)

    args = [logits, heat, index, weight]
    compiled = torch.compile(all_of_them, backend="aot_eager", fullgraph=True)
    for x, y in zip(with_grads(compiled, *args), with_grads(all_of_them, *args), strict=True):
        assert torch.equal(x, y)


def test_pointers_say_what_they_cannot_do() -> None:
    index, weight = random_index(9, 2, 65), random_weight(2, 1, 65).view(2, 65)
    with pytest.raises(
        ValueError, match="sparsify: backend 'triton' takes lists of at most 64 candidates, got 65; use"
    ):
        sparse(index, weight, 2)
    with pytest.raises(ValueError, match="keeps at most 64 pointers, 's' is 65; use 'blocked'"):
        sparse(index[:, :9], weight[:, :9], 65)
    with pytest.raises(ValueError, match="refer: backend 'triton' takes lists of at most 64 candidates, got 81"):
        refer_in_registers(*leg_inputs(2, 2, 1, 9, 9), s=2)
    with pytest.raises(ValueError, match="mix: backend 'triton' takes 1 to 256 candidates per token, got 260"):
        mixed("triton", 2, *mix_inputs(2, [(65, 4)], 2, size=5))
    with pytest.raises(ValueError, match=r"at most 4096 logits per token .*, got 40 edges and 65 channels"):
        mixed("triton", 2, *mix_inputs(2, [(40, 1)], 65, size=5))
    with pytest.raises(ValueError, match="a group of 'edges' is"):
        mixed("triton", 2, *mix_inputs(2, [(4, 1)], 3, size=5)[:3], weight)

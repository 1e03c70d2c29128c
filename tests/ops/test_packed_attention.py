from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.ops import packed_attention
from pyg_textgraph.ops.packed_attention import Runs, row_attention

RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=4).map(tuple)


def inputs(runs: Runs, slots: int, heads: int = 2, dim: int = 3) -> dict[str, Tensor]:
    total, longest = sum(n * length for n, length in runs), max(length for _, length in runs)
    tokens = sum(n * length for i, (n, length) in enumerate(runs) if sum(m for m, _ in runs[: i + 1]) <= slots)
    shapes = {"q": total, "k": total, "v": total, "slot_key": slots, "slot_value": slots, "slot_query": tokens}
    generator = torch.Generator().manual_seed(0)
    random = partial(torch.randn, generator=generator, dtype=torch.float64)
    out = {name: random(n, heads, dim) for name, n in shapes.items()}
    return out | {"bias": random(heads, longest + 1, longest + 1)}


def with_grads(call: Callable[..., Tensor], values: dict[str, Tensor]) -> list[Tensor]:
    leaves = {name: x.clone().requires_grad_() for name, x in values.items()}
    out = call(**leaves)
    seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return [out, *torch.autograd.grad((out * seed).sum(), list(leaves.values()))]


@pytest.mark.parametrize("names", [(), ("slot_key", "slot_value"), ("slot_key", "slot_value", "slot_query")])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("window", [None, 1])
@settings(max_examples=25)
@given(runs=RUNS, with_slot=st.integers(1, 4))
def test_matches_reference(names: tuple[str, ...], bias: bool, window: int | None, runs: Runs, with_slot: int) -> None:
    slots = sum(n for n, _ in runs[:with_slot])
    values = {k: x for k, x in inputs(runs, slots).items() if k in ("q", "k", "v", *names) or (bias and k == "bias")}
    call = partial(packed_attention, runs=runs, window=window)
    assert_close(with_grads(call, values), with_grads(partial(call, backend="reference"), values))


@pytest.mark.parametrize("slot", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("window", [None, 1])
def test_one_row_per_text(slot: bool, bias: bool, window: int | None) -> None:
    """Against the rows of whole attention that stand at the texts' first tokens."""
    runs, first = ((2, 3), (1, 5), (2, 2)), torch.tensor([0, 3, 6, 11, 13])
    names = ("q", "k", "v", *(("slot_key", "slot_value") if slot else ()), *(("bias",) if bias else ()))
    values = {name: inputs(runs, slots=3)[name] for name in names}

    def rows(q: Tensor, bias: Tensor | None = None, **rest: Tensor) -> Tensor:
        return row_attention(q[first], runs=runs, window=window, bias=None if bias is None else bias[:, 0], **rest)

    def whole(**rest: Tensor) -> Tensor:
        return packed_attention(runs=runs, window=window, backend="reference", **rest)[first]

    assert_close(with_grads(rows, values), with_grads(whole, values))


def test_dropout_keeps_the_mean() -> None:
    x = {name: inputs(((200, 4),), 0)[name].mul(0.1).float() for name in ("q", "k", "v")}
    x["v"] = torch.ones_like(x["v"])
    out = packed_attention(**x, runs=((200, 4),), dropout=0.5)
    assert out.mean() == pytest.approx(1, abs=0.05)
    assert out.std() > 0.2


def test_wrong_shapes_are_named() -> None:
    x = inputs(((2, 3),), slots=1)
    with pytest.raises(ValueError, match="'q'"):
        packed_attention(x["q"], x["k"], x["v"], ((1, 3),))
    with pytest.raises(ValueError, match="inside a run"):
        packed_attention(x["q"], x["k"], x["v"], ((2, 3),), slot_key=x["slot_key"], slot_value=x["slot_value"])
    with pytest.raises(ValueError, match="neither"):
        packed_attention(x["q"], x["k"], x["v"], ((2, 3),), slot_key=x["slot_key"])
    with pytest.raises(ValueError, match="dropout"):
        packed_attention(x["q"], x["k"], x["v"], ((2, 3),), dropout=0.1, backend="reference")

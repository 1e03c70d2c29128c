"""The Triton kernels against the reference: on a GPU, or with TRITON_INTERPRET=1 on small shapes (`make kernels`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from importlib import import_module

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops.graph_attention import graph_attention, graph_attention_reference
from tests.ops.strategies import (
    eager_attention,
    layouts,
    list_pairs,
    make_layout,
    random_inputs,
    random_visible,
    with_grads,
)

pytestmark = pytest.mark.kernels

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# the interpreter truncates to bfloat16 and multiplies its bits
LOW_PRECISION = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
triton_attention = partial(graph_attention, backend="triton")


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16 tokens, so that small graphs have several, and lists however much they hold."""
    monkeypatch.setattr(import_module("pyg_textgraph.ops.graph_attention.triton_lists"), "CROWDED", 2)
    launch = import_module("pyg_textgraph.ops.graph_attention.triton_launch")
    listed = import_module("pyg_textgraph.ops.graph_attention.triton_listed_launch")
    monkeypatch.setattr(launch, "blocks_of", lambda *_: launch.Blocks(16, 16))
    monkeypatch.setattr(listed, "listed_blocks", lambda *_: launch.Blocks(16, 16))


def inputs_on_device(layout: TokenLayout, **options: object) -> tuple[list[Tensor], TokenLayout]:
    """float32 inputs and their layout, where the kernels run."""
    inputs = random_inputs(layout, **{"dtype": torch.float32, **options})  # type: ignore[arg-type]
    return [x.detach().to(DEVICE).requires_grad_() for x in inputs], layout.to(DEVICE)


def assert_matches_reference(layout: TokenLayout, tolerance: float = 2e-5, **options: object) -> None:
    shape = {name: options.pop(name) for name in ("heads", "kv_heads", "channels") if name in options}
    inputs, layout = inputs_on_device(layout, pairs=options.get("pairs"), **shape)
    options = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in options.items()}
    q, k, v, bias = inputs
    actual = with_grads(triton_attention, q, k, v, layout, bias, **options)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = with_grads(graph_attention_reference, *exact[:3], layout, exact[3], **options)
    for name, x, y in zip(("out", "dq", "dk", "dv", "dbias"), actual, expected, strict=True):
        torch.testing.assert_close(
            x.double(), y, atol=tolerance, rtol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@SETTINGS
@given(
    layouts(max_graphs=2, max_nodes=4, max_tokens=9),
    st.sampled_from([None, 1.5]),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([None, 0.1, 0.5]),
)
def test_matches_reference(
    small_tiles: None, layout: TokenLayout, softcap: float | None, window: int | None, share: float | None
) -> None:
    visible = None if share is None else random_visible(layout, share)
    options = {"softcap": softcap, "window": window, "visible": visible, "scale": 0.7}
    assert_matches_reference(layout, heads=2, kv_heads=1, **options)


@SETTINGS
@given(
    layouts(max_graphs=2, max_nodes=5, max_tokens=20),
    st.sampled_from([None, 1.5]),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_listed_pairs_match_reference(
    small_tiles: None, layout: TokenLayout, softcap: float | None, window: int | None, share: float
) -> None:
    pairs = list_pairs(layout, random_visible(layout, share))
    assert_matches_reference(layout, heads=2, kv_heads=1, softcap=softcap, window=window, pairs=pairs)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (4, 1), (8, 1)])
def test_shared_key_heads(small_tiles: None, heads: int, kv_heads: int) -> None:
    layout = make_layout([[5, 9], [4]], "prefix", [0, None])
    pairs = torch.tensor([[0, 1], [1, 0]])
    for options in ({}, {"pairs": pairs}):
        assert_matches_reference(layout, heads=heads, kv_heads=kv_heads, **options)


@pytest.mark.parametrize("mode", ["prefix", "causal", "full"])
def test_segments_longer_and_shorter_than_tiles(small_tiles: None, mode: str) -> None:
    layout = make_layout([[34, 9, 3], [1] * 20, [1]], mode, [0, 3, 0], loose=mode == "causal")  # type: ignore[arg-type]
    for options in ({}, {"window": 18, "visible": random_visible(layout, 0.2)}):
        assert_matches_reference(layout, heads=1, kv_heads=1, channels=4, **options)


def test_a_node_in_several_runs(small_tiles: None) -> None:
    layout = make_layout([[3] * 14], "causal")
    mixed = torch.randint(-1, 5, (42,), generator=torch.Generator().manual_seed(0))
    assert_matches_reference(TokenLayout(**{**vars(layout), "node": mixed}), heads=1, kv_heads=1, window=30)


@pytest.mark.parametrize("channels", [24, 64, 100, 160])
def test_real_tile_sizes(channels: int) -> None:
    layout = make_layout([[1] * 20 + [3] * 10 + [70]], "prefix", [4])
    for pairs in (None, list_pairs(layout, random_visible(layout, 0.1))):
        assert_matches_reference(layout, heads=2, kv_heads=1, channels=channels, pairs=pairs)


@pytest.mark.parametrize("listed", [False, True])
def test_without_bias_and_with_listed_pairs(small_tiles: None, listed: bool) -> None:
    layout = make_layout([[2, 3, 1, 12], [4]], "prefix", [1, None])
    visible = random_visible(layout)
    if listed:
        assert_matches_reference(layout, pairs=list_pairs(layout, visible))
    (q, k, v, _), layout = inputs_on_device(layout)
    for options in (
        {},
        {"pairs": list_pairs(layout, visible.to(DEVICE))} if listed else {"visible": visible.to(DEVICE)},
    ):
        expected = with_grads(graph_attention_reference, q, k, v, layout, **options)
        for x, y in zip(with_grads(triton_attention, q, k, v, layout, **options), expected, strict=True):
            torch.testing.assert_close(x, y, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("mode", ["prefix", "causal"])
def test_crowded_pairs_take_the_dense_kernels(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    module = import_module("pyg_textgraph.ops.graph_attention.triton")
    called: list[str] = []
    for name in ("forward_launch", "listed_forward_launch"):
        launch = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, n=name, f=launch: (called.append(n), f(*args))[1])
    layout = make_layout([[3, 2, 4, 3, 2, 3, 2], [4, 1]], mode, [1, None])  # type: ignore[arg-type]
    for share in (0.9, 0.0):
        pairs = list_pairs(layout, random_visible(layout, share))
        assert_matches_reference(layout, heads=2, kv_heads=1, pairs=pairs, window=7)
    assert called == ["forward_launch", "listed_forward_launch"]
    # a dense bias of many small graphs beside a larger one would be mostly padding
    layout = make_layout([[3] * 8, *[[1]] * 9], mode, None)  # type: ignore[arg-type]
    assert_matches_reference(layout, heads=2, kv_heads=1, pairs=list_pairs(layout, random_visible(layout, 1.0)))
    assert called[2:] == ["listed_forward_launch"]


def test_no_tokens() -> None:
    (q, k, v, bias), layout = inputs_on_device(make_layout([[0, 0], [0]]))
    out, *grads = with_grads(triton_attention, q, k, v, layout, bias)
    assert out.shape == (0, 4, 8)
    assert bool((grads[3] == 0).all())


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_is_no_worse_than_eager(dtype: torch.dtype) -> None:
    layout = make_layout([[16] * 6 + [9] * 5, [5] * 8], "prefix", [3, 5])
    exact, layout = inputs_on_device(layout, heads=3, kv_heads=1, channels=64)
    low = [x.detach().to(dtype).requires_grad_() for x in exact[:3]]
    wide = [x.detach().double().requires_grad_() for x in low]
    bias = exact[3]
    expected = with_grads(graph_attention_reference, *wide, layout, bias.detach().double().requires_grad_())
    actual = with_grads(triton_attention, *low, layout, bias)
    eager = with_grads(eager_attention, *low, layout, bias)
    assert actual[4].dtype == torch.float32
    for name, x, y, z in zip(("out", "dq", "dk", "dv", "dbias"), actual, eager, expected, strict=True):
        ours, theirs = ((a.double() - z).norm() for a in (x, y))
        assert ours <= 1.02 * theirs, f"{name}: {float(ours / theirs):.3f} of eager's error"


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Fresh memory holds NaN."""
    torch.use_deterministic_algorithms(True)
    assert bool(torch.empty(3, device=DEVICE).isnan().all())
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", ["prefix", "causal", "full"])
def test_every_element_is_written_and_twice_the_same(small_tiles: None, poisoned_memory: None, mode: str) -> None:
    layout = make_layout([[9, 0, 20, 1], [1], [0]], mode, [2, 0, 0])  # type: ignore[arg-type]
    for pairs in (None, list_pairs(layout, random_visible(layout))):
        (q, k, v, bias), there = inputs_on_device(layout, heads=2, kv_heads=1, pairs=pairs)
        run = partial(triton_attention, pairs=None if pairs is None else pairs.to(DEVICE))
        first = with_grads(run, q, k, v, there, bias)
        assert all(bool(x.isfinite().all()) for x in first)
        assert all(torch.equal(x, y) for x, y in zip(first, with_grads(run, q, k, v, there, bias), strict=True))


def test_is_an_ordinary_op(small_tiles: None) -> None:
    """For torch.compile, checkpointing, autocast and views."""
    (q, k, v, bias), layout = inputs_on_device(make_layout([[3, 2, 15]], "prefix", [1]))
    import_module("pyg_textgraph.ops.graph_attention.triton")  # registers the operator
    op = torch.ops.pyg_textgraph.graph_attention.default
    tokens = (layout.graph_ptr, layout.node, layout.position, layout.is_target, layout.num_nodes, "prefix")
    for b in (bias, None):
        torch.library.opcheck(op, (q, k, v, b, None, None, *tokens, 0.5, None, None))
    run = partial(triton_attention, layout=layout)
    plain = with_grads(lambda *x: op(*x[:3], x[3], None, None, *tokens, 0.5, None, None)[0], q, k, v, bias)
    compiled = torch.compile(
        lambda *x: op(*x[:3], x[3], None, None, *tokens, 0.5, None, None)[0], backend="aot_eager", fullgraph=True
    )
    again = with_grads(lambda *x: checkpoint(run, *x[:3], bias=x[3], scale=0.5, use_reentrant=False), q, k, v, bias)
    for other in (with_grads(compiled, q, k, v, bias), again):
        assert all(torch.equal(x, y) for x, y in zip(other, plain, strict=True))

    turned = [x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for x in (q, k, v)]
    other = with_grads(triton_attention, *turned, layout, bias, scale=0.5)
    assert all(torch.equal(x, y) for x, y in zip(other, plain, strict=True))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out, *grads = with_grads(triton_attention, q, k, v, layout, bias)
    assert out.dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for x in grads)


def test_plan_is_shared_by_calls_and_follows_changed_pairs(small_tiles: None) -> None:
    plans = import_module("pyg_textgraph.ops.graph_attention.triton_plan")._PLANS
    layout = make_layout([[2, 2, 2]])
    pairs = torch.tensor([[0, 1], [1, 2]]).to(DEVICE)
    (q, k, v, bias), layout = inputs_on_device(layout, pairs=pairs)
    triton_attention(q, k, v, layout, bias, pairs=pairs)
    ((*_, plan),) = plans[layout.node]
    lists = plan._lists
    with_grads(triton_attention, q, k, v, layout, bias, pairs=pairs)
    assert len(plans[layout.node]) == 1
    assert plan._lists is lists
    pairs[1, 0] = 2
    expected = graph_attention_reference(q, k, v, layout, bias, pairs=pairs)
    torch.testing.assert_close(triton_attention(q, k, v, layout, bias, pairs=pairs), expected)
    known = len(plans)
    del layout
    assert len(plans) == known - 1


def test_says_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    (q, k, v, bias), layout = inputs_on_device(make_layout([[1, 2]]), channels=8)
    with pytest.raises(ValueError, match=r"takes float16, bfloat16 and float32, 'q' is torch\.float64; use 'blocked'"):
        triton_attention(q.double(), k.double(), v.double(), layout, bias)
    wide = [torch.zeros(3, 1, 300, device=DEVICE)] * 3
    with pytest.raises(ValueError, match="takes at most 256 channels per head, 'q' has 300"):
        triton_attention(*wide, layout)
    many = torch.zeros(1, 1, 1, 1, device=DEVICE).expand(1, 1, 50000, 50000)
    reason = import_module("pyg_textgraph.ops.graph_attention.triton").unsupported(q, k, v, layout, many)
    assert reason == "counts the bias in 32 bits, which shape (1, 1, 50000, 50000) exceeds"
    monkeypatch.setattr(import_module("pyg_textgraph.ops.triton_limits"), "INTERPRETED", False)
    with pytest.raises(ValueError, match="needs tensors on a CUDA device, 'q' is on cpu; use 'blocked'"):
        triton_attention(q.cpu(), k.cpu(), v.cpu(), layout.to("cpu"), bias.cpu())

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from pyg_textgraph.data.layout import TokenLayout
from pyg_textgraph.ops import backend as dispatch
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

BACKENDS = ["blocked"]
PLAN = sys.modules["pyg_textgraph.ops.graph_attention.plan"]
SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=[10**9, -(10**9)], ids=["blocks", "tiles"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forces either way to go over hidden pairs."""
    monkeypatch.setattr(PLAN, "GATHER", request.param)


def assert_close(actual: list[Tensor], expected: list[Tensor], tolerance: float = 1e-10) -> None:
    for name, x, y in zip(("out", "dq", "dk", "dv", "dbias"), actual, expected, strict=False):
        torch.testing.assert_close(x, y, atol=tolerance, rtol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (4, 1)])
@SETTINGS
@given(layouts(), st.sampled_from([None, 1.5]), st.sampled_from([None, 1, 3]))
def test_matches_reference(
    backend: str, heads: int, kv_heads: int, layout: TokenLayout, softcap: float | None, window: int | None
) -> None:
    q, k, v, bias = random_inputs(layout, heads, kv_heads)
    options = {"softcap": softcap, "window": window, "scale": 0.7}
    expected = with_grads(graph_attention_reference, q, k, v, layout, bias, **options)
    assert_close(with_grads(graph_attention, q, k, v, layout, bias, backend=backend, **options), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@SETTINGS
@given(layouts(max_tokens=4), st.sampled_from([None, 1.5]), st.sampled_from([None, 2]), st.sampled_from([0.1, 0.5]))
def test_hidden_pairs_match_reference(
    backend: str, way: None, layout: TokenLayout, softcap: float | None, window: int | None, share: float
) -> None:
    visible = random_visible(layout, share)
    pairs = list_pairs(layout, visible)
    for form in ({"visible": visible}, {"pairs": pairs}):
        q, k, v, bias = random_inputs(layout, pairs=form.get("pairs"))
        options = {"softcap": softcap, "window": window, **form}
        expected = with_grads(graph_attention_reference, q, k, v, layout, bias, **options)
        assert_close(with_grads(graph_attention, q, k, v, layout, bias, backend=backend, **options), expected)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@SETTINGS
@given(layouts())
def test_listed_pairs_equal_dense_form(backend: str, way: None, layout: TokenLayout) -> None:
    visible = random_visible(layout)
    pairs = list_pairs(layout, visible)
    q, k, v, bias = random_inputs(layout)
    place = visible.nonzero(as_tuple=True)
    listed = bias[place[0], :, place[1], place[2]].T
    run = partial(graph_attention, backend=backend)
    dense = with_grads(run, q, k, v, layout, bias, visible=visible)
    actual = with_grads(lambda q, k, v, bias: run(q, k, v, layout, listed, pairs=pairs), q, k, v, bias)
    assert_close(actual, dense)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_bias(backend: str, way: None) -> None:
    layout = make_layout([[2, 3, 1], [4]], "prefix", [1, None])
    q, k, v, _ = random_inputs(layout)
    for visible in (None, random_visible(layout)):
        expected = with_grads(graph_attention_reference, q, k, v, layout, visible=visible)
        assert_close(with_grads(graph_attention, q, k, v, layout, visible=visible, backend=backend), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["prefix", "causal", "full"])
def test_many_blocks_and_long_nodes(backend: str, way: None, mode: str) -> None:
    layout = make_layout([[150, 40, 3], [1] * 50, [200]], mode, [0, 3, 0], loose=mode == "causal")  # type: ignore[arg-type]
    visible = random_visible(layout, 0.2)
    q, k, v, bias = random_inputs(layout, heads=3, kv_heads=1, channels=4)
    for options in ({}, {"visible": visible}, {"window": 70}):
        expected = with_grads(graph_attention_reference, q, k, v, layout, bias, **options)
        assert_close(with_grads(graph_attention, q, k, v, layout, bias, backend=backend, **options), expected)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_no_tokens_and_no_pairs(backend: str) -> None:
    empty = make_layout([[0, 0], [0]])
    q, k, v, bias = random_inputs(empty)
    assert graph_attention(q, k, v, empty, bias, backend=backend).shape == (0, 4, 8)
    alone = make_layout([[1, 1], [1]])  # every token sees itself only
    q, k, v, bias = random_inputs(alone, kv_heads=4, pairs=(none := torch.empty(2, 0, dtype=torch.long)))
    torch.testing.assert_close(graph_attention(q, k, v, alone, bias, pairs=none, backend=backend), v)


def test_reference_row_that_sees_nothing_is_zero() -> None:
    layout = make_layout([[2, 1]])
    q, k, v, bias = random_inputs(layout)
    out, *grads = with_grads(
        graph_attention_reference, q, k, v, layout, bias, window=0, visible=torch.zeros(1, 2, 2) > 0
    )
    assert all(bool((x == 0).all()) for x in (out, *grads))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@SETTINGS
@given(layouts())
def test_score_gradient_rows_sum_to_zero(backend: str, layout: TokenLayout) -> None:
    """Softmax ignores a constant per row, so where all keys are equal no query gets a gradient."""
    q, k, v, bias = random_inputs(layout)
    same = k[:1].detach().expand_as(k).clone().requires_grad_()
    _, dq, _, _, dbias = with_grads(graph_attention, q, same, v, layout, bias, softcap=2.0, backend=backend)
    torch.testing.assert_close(dq, torch.zeros_like(dq), atol=1e-12, rtol=0)
    assert bool((dbias.diagonal(dim1=2, dim2=3) == 0).all())


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_bias_is_read_by_query_row_and_key_column(backend: str) -> None:
    layout = make_layout([[1, 1]], "full")
    q, k = torch.zeros(2, 1, 1), torch.zeros(2, 1, 1)
    v = torch.tensor([0.0, 1.0]).view(2, 1, 1)
    bias = torch.tensor([[9.0, torch.log(torch.tensor(3.0))], [0.0, 9.0]]).view(1, 1, 2, 2)
    out = graph_attention(q, k, v, layout, bias, backend=backend).view(-1)
    torch.testing.assert_close(out, torch.tensor([0.75, 0.5]))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_order_of_context_nodes_does_not_matter(backend: str) -> None:
    counts, order = [3, 1, 4, 2], [2, 0, 1, 3]  # the target, node 3, stays last
    layout = make_layout([counts], "prefix", [3])
    moved = make_layout([[counts[u] for u in order]], "prefix", [3])
    place = torch.cat([(layout.node == u).nonzero().view(-1) for u in order])
    q, k, v, bias = random_inputs(layout)
    expected = graph_attention(q, k, v, layout, bias, backend=backend)
    actual = graph_attention(q[place], k[place], v[place], moved, bias[:, :, order][..., order], backend=backend)
    torch.testing.assert_close(actual, expected[place])


class _Largest(TorchDispatchMode):
    """Notes the most elements that any result has."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor):
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("listed", [False, True])
def test_memory_stays_linear(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PLAN, "BLOCK_SCORES", 1 << 16)
    monkeypatch.setattr(PLAN, "TILE_SCORES", 1 << 16)
    layout = make_layout([[10] * 300])
    ring = torch.arange(300)
    pairs = torch.stack([ring, ring.roll(1)]) if listed else None
    q, k, v, bias = random_inputs(layout, heads=1, kv_heads=1, channels=4, dtype=torch.float32, pairs=pairs)
    with _Largest() as largest:
        graph_attention(q, k, v, layout, bias, pairs=pairs).sum().backward()
    assert largest.numel < layout.num_tokens**2 / 50


def test_keeps_only_its_inputs() -> None:
    layout = make_layout([[4] * 5])
    inputs = random_inputs(layout)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(x), x)[1], lambda x: x):
        graph_attention(*inputs[:3], layout, inputs[3])
    assert [x.data_ptr() for x in saved] == [x.data_ptr() for x in inputs]


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_is_no_worse_than_eager(backend: str) -> None:
    layout = make_layout([[16] * 20, [9] * 12], "prefix", [3, 5])
    exact = random_inputs(layout, heads=9, kv_heads=3, channels=64)
    low = [x.detach().bfloat16().requires_grad_() for x in exact[:3]]
    wide = [x.detach().double().requires_grad_() for x in low]
    bias = exact[3].detach().float().requires_grad_()
    expected = with_grads(graph_attention_reference, *wide, layout, bias.detach().double().requires_grad_())
    actual = with_grads(partial(graph_attention, backend=backend), *low, layout, bias)
    eager = with_grads(eager_attention, *low, layout, bias)
    assert actual[4].dtype == torch.float32
    for name, x, y, z in zip(("out", "dq", "dk", "dv", "dbias"), actual, eager, expected, strict=True):
        ours, theirs = ((a.double() - z).norm() for a in (x, y))
        assert ours <= 1.02 * theirs, f"{name}: {float(ours / theirs):.3f} of eager's error"


def test_autocast_and_checkpoint_change_nothing() -> None:
    layout = make_layout([[3, 2, 5]], "prefix", [1])
    q, k, v, bias = random_inputs(layout, dtype=torch.float32)
    plain = with_grads(graph_attention, q, k, v, layout, bias)
    again = with_grads(lambda *x: checkpoint(graph_attention, *x, use_reentrant=False), q, k, v, layout, bias)
    assert_close(again, plain, tolerance=0)

    low = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    expected = with_grads(graph_attention, *low, layout, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = with_grads(graph_attention, q, k, v.bfloat16(), layout, bias)
    assert actual[0].dtype == torch.bfloat16
    assert actual[1].dtype == actual[4].dtype == torch.float32
    assert_close([x.to(y.dtype) for x, y in zip(actual, expected, strict=True)], expected, tolerance=0)


def test_compiled_code_may_call_it() -> None:
    layout = make_layout([[3, 2, 5]], "prefix", [1])
    inputs = random_inputs(layout, dtype=torch.float32)

    def layer(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return 2 * graph_attention(q * 3, k, v, layout, bias.sin())

    compiled = torch.compile(layer, backend="aot_eager")
    assert_close(with_grads(compiled, *inputs), with_grads(layer, *inputs), tolerance=1e-6)


def test_plan_is_shared_by_calls_and_follows_changed_pairs() -> None:
    layout = make_layout([[2, 2, 2]])
    pairs = torch.tensor([[0, 1], [1, 2]])
    q, k, v, bias = random_inputs(layout, pairs=pairs)
    graph_attention(q, k, v, layout, bias, pairs=pairs)
    plans = PLAN._PLANS[layout]
    graph_attention(q, k, v, layout, bias, pairs=pairs)
    assert len(plans) == 1
    pairs[1, 0] = 2
    actual = graph_attention(q, k, v, layout, bias, pairs=pairs)
    torch.testing.assert_close(actual, graph_attention_reference(q, k, v, layout, bias, pairs=pairs))
    known = len(PLAN._PLANS)
    del layout
    assert len(PLAN._PLANS) == known - 1


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0], [5]], "'pairs' has nodes from 0 to 5, expected nodes of the batch, 0 to 4"),
        ([[-1], [0]], "'pairs' has nodes from -1 to 0"),
        ([[0], [3]], "'pairs' joins nodes of two graphs"),
        ([[0, 0], [1, 1]], "'pairs' lists a pair twice"),
    ],
)
def test_bad_pairs(backend: str, pairs: list[list[int]], message: str) -> None:
    layout = make_layout([[1, 1, 1], [2, 2]])
    index = torch.tensor(pairs)
    q, k, v, bias = random_inputs(layout, pairs=index)
    with pytest.raises(ValueError, match=message):
        graph_attention(q, k, v, layout, bias, pairs=index, backend=backend)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(4, 4, 8)}, r"'q' is \(4, 4, 8\), expected \(T, H, D\) with T = 3"),
        ({"k": torch.zeros(3, 3, 8)}, r"'k' is \(3, 3, 8\), expected \(T, H_kv, D\) = \(3, a divisor of 4, 8\)"),
        ({"v": torch.zeros(3, 1, 8)}, r"'v' is \(3, 1, 8\), expected \(3, 2, 8\) as k"),
        ({"v": torch.zeros(3, 2, 8).double()}, "'v' is torch.float64, expected torch.float32 as q"),
        ({"bias": torch.zeros(1, 4, 3, 3)}, r"'bias' is \(1, 4, 3, 3\), expected \(1, 4, 2, 2\)"),
        ({"visible": torch.zeros(1, 2, 2)}, r"'visible' is torch.float32 of shape \(1, 2, 2\), expected bool"),
        ({"pairs": torch.zeros(2, 1)}, r"'pairs' is torch.float32 of shape \(2, 1\), expected int64 \(2, P\)"),
        (
            {"pairs": torch.zeros(2, 0).long(), "visible": torch.ones(1, 2, 2) > 0},
            "give 'pairs' or 'visible', not both",
        ),
        ({"pairs": torch.tensor([[0], [1]])}, r"'bias' is \(1, 4, 2, 2\), expected \(4, 1\)"),
        ({"window": 0}, "'window' is 0, expected at least 1"),
        ({"backend": "flash"}, "'backend' is 'flash', expected one of 'auto'"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str) -> None:
    layout = make_layout([[1, 2]])
    q, k, v, bias = random_inputs(layout, dtype=torch.float32)
    arguments = {"q": q, "k": k, "v": v, "layout": layout, "bias": bias} | change
    with pytest.raises(ValueError, match=message):
        graph_attention(**arguments)  # type: ignore[arg-type]


def test_triton_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, pyg_textgraph.ops; sys.exit('pyg_textgraph.ops.graph_attention.triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setattr(dispatch, "HAS_TRITON", False)
    layout = make_layout([[1, 2]])
    q, k, v, bias = random_inputs(layout)
    assert graph_attention(q, k, v, layout, bias).shape == q.shape
    with pytest.raises(ModuleNotFoundError, match=r"backend 'triton' needs the package triton; pip install"):
        graph_attention(q, k, v, layout, bias, backend="triton")


def test_autocast_leaves_float64_alone() -> None:
    layout = make_layout([[2, 3], [1]], mode="full")
    q = torch.randn(layout.num_tokens, 2, 4, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert graph_attention(q, q, q, layout).dtype == torch.float64
        assert graph_attention(q.float(), q.float(), q.float(), layout).dtype == torch.bfloat16


def test_listed_pairs_are_not_padded_to_the_largest_graph() -> None:
    layout = make_layout([[1, 1]] * 30 + [[1] * 60], mode="full")
    node = torch.arange(layout.num_tokens - 1)
    pairs = torch.stack([node, node + 1])[:, layout.graph[:-1] == layout.graph[1:]]
    assert isinstance(PLAN.plan_of(layout, pairs, None, None, 2), PLAN.ListedPlan)
    torch.manual_seed(0)
    q, bias = torch.randn(layout.num_tokens, 2, 4).double(), torch.randn(2, pairs.size(1)).double()
    out = [graph_attention(q, q, q, layout, bias, pairs=pairs, backend=b) for b in ("blocked", "reference")]  # type: ignore[arg-type]
    torch.testing.assert_close(*out)

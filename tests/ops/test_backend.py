from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from pyg_textgraph.ops import (
    backend,
    edge_attention,
    mix,
    neighborhood_attention,
    packed_attention,
    refer,
    sparsify,
)


class OnGpu(Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


PORTABLE = {"reference": lambda *_: "reference", "blocked": lambda *_: "blocked"}


def chosen(name: str, x: Any, reason: str | None = None) -> str:
    kernels = SimpleNamespace(run=lambda *_: "triton", unsupported=lambda *_: reason)
    return backend.implementation("op", name, PORTABLE, lambda: cast(ModuleType, kernels), (x, 3))(x, 3)


def test_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = torch.zeros(1), torch.zeros(1).as_subclass(OnGpu)
    monkeypatch.setattr(backend, "HAS_TRITON", True)
    assert chosen("auto", here) == "blocked"
    assert chosen("auto", there) == chosen("auto", [(there, here)]) == "triton"
    assert chosen("auto", there, "cannot") == "blocked"
    assert chosen("reference", there) == "reference"
    assert chosen("triton", here) == "triton"
    with pytest.raises(ValueError, match="op: backend 'triton' cannot; use 'blocked'"):
        chosen("triton", there, "cannot")
    monkeypatch.setattr(backend, "HAS_TRITON", False)
    assert chosen("auto", there) == "blocked"
    with pytest.raises(ModuleNotFoundError, match="op: backend 'triton' needs the package triton"):
        chosen("triton", there)


def test_unknown_names_are_errors() -> None:
    index, weight = torch.zeros(1, 1, 1, dtype=torch.int32), torch.ones(1, 1, 1)
    x, tau = torch.ones(1, 1, 2), torch.ones(1, 1)
    for op, args in (
        (edge_attention, (x, x, x, index, weight, tau, tau)),
        (mix, ([(index, weight)], weight, 1)),
        (refer, (index, weight, index, weight, 1)),
        (sparsify, (index, weight, 1)),
    ):
        with pytest.raises(ValueError, match=f"{op.__name__}: 'backend' is 'cuda', expected one of 'auto'"):
            op(*args, backend="cuda")  # type: ignore[operator]


def test_shapes_are_checked() -> None:
    index, weight = torch.zeros(1, 1, 2, dtype=torch.int32), torch.ones(1, 1, 2)
    x, tau = torch.ones(1, 1, 2), torch.ones(1, 1)
    with pytest.raises(ValueError, match=r"edge_attention: 'weight' is \(1, 1\), expected \(1, 1, 2\)"):
        edge_attention(x, x, x, index, tau, tau, tau)
    with pytest.raises(ValueError, match=r"refer: 'next_weight' is \(1, 1\), expected \(1, 1, 2\)"):
        refer(index, weight, index, tau, 1)
    with pytest.raises(ValueError, match=r"mix: 'temperature' is \(1, 1, 2\), expected \(1, 3\)"):
        mix([(index, weight)], torch.ones(1, 1, 3), 1, weight)


def test_attention_of_texts_refuses_unknown_backends() -> None:
    q = torch.randn(7, 2, 4)
    with pytest.raises(ValueError, match="packed_attention: 'backend' is 'triton', expected one of 'by_length', 'ref"):
        packed_attention(q, q, q, ((1, 7),), backend="triton")  # type: ignore[arg-type]
    p, b = torch.randn(2, 4, 8), torch.zeros(2, 4)
    with pytest.raises(ValueError, match="neighborhood_attention: 'backend' is 'x'"):
        neighborhood_attention(
            torch.randn(1, 3, 8), p, p, p, torch.ones(1, 3).bool(), torch.zeros(3, 2), query_bias=b, value_bias=b,
            backend="x",  # type: ignore[arg-type]
        )  # fmt: skip


def test_precision_follows_torchs_settings_old_and_new(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from pyg_textgraph.ops.graph_attention.triton_launch import precision_of

    matmul = torch.backends.cuda.matmul
    assert precision_of(torch.bfloat16) == "tf32"
    assert precision_of(torch.float32) == ("tf32" if torch.get_float32_matmul_precision() != "highest" else "ieee")
    if not hasattr(matmul, "fp32_precision"):
        return
    before = matmul.fp32_precision
    try:
        for told in ("tf32", "ieee"):
            matmul.fp32_precision = told
            assert precision_of(torch.float32) == told
    finally:
        matmul.fp32_precision = before

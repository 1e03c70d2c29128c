from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from pyg_textgraph.ops import backend, edge_attention, mix, refer, sparsify


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

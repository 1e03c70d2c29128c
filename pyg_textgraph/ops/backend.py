"""Which function computes an op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def implementation(
    op: str,
    backend: str,
    portable: Mapping[str, Callable[..., Any]],
    triton: Callable[[], ModuleType],
    args: tuple[Any, ...],
) -> Callable[..., Any]:
    """The function behind a backend's name.

    Args:
        op: For messages.
        backend: ``"triton"``, one of `portable`, or ``"auto"``: triton for CUDA tensors where it can do it, else the
            last of `portable`.
        portable: Functions that run on any device.
        triton: Imports the module of the kernels. It has ``run``, and ``unsupported``, which takes the same arguments
            and says why the kernels cannot take them, or None.
        args: What the function will be called with; the first tensor says on which device.

    Raises:
        ValueError: If there is no such backend or the kernels cannot do it.
        ModuleNotFoundError: If ``"triton"`` is asked for and not installed.
    """
    *_, default = portable
    if backend == "auto":
        on_gpu = _first_tensor(args).is_cuda and HAS_TRITON
        kernels = triton() if on_gpu else None
        return portable[default] if kernels is None or kernels.unsupported(*args) else kernels.run
    check_backend(op, backend, ["auto", "triton", *portable])
    if backend in portable:
        return portable[backend]
    if not HAS_TRITON:
        way_out = f"pip install 'pyg-textgraph[triton]', or use {default!r}"
        raise ModuleNotFoundError(f"{op}: backend 'triton' needs the package triton; {way_out}")
    kernels = triton()
    if reason := kernels.unsupported(*args):
        raise ValueError(f"{op}: backend 'triton' {reason}; use {default!r}")
    return kernels.run


def check_backend(op: str, backend: str, known: Collection[str]) -> None:
    """Refuses a backend that is none.

    Raises:
        ValueError: Naming those that there are.
    """
    if backend not in known:
        raise ValueError(f"{op}: 'backend' is {backend!r}, expected one of {', '.join(map(repr, sorted(known)))}")


def _first_tensor(args: Any) -> Tensor:
    """Looks into lists and tuples of tensors, too."""
    first = args[0]
    return first if isinstance(first, Tensor) else _first_tensor(first)

"""The s largest of many short lists, much faster than a sort."""

import torch
from torch import Tensor

_SPARE_BITS = (1 << 29) - 1  # mantissa bits that a float64 has beyond a float32


def heaviest(weight: Tensor, s: int, dim: int) -> tuple[Tensor, Tensor]:
    """The s largest of non-negative weights along a dimension, largest first and ties by position.

    A float32 weight and its position share one float64, so that a tournament of ``maximum`` and ``minimum``, which
    CPUs run on many lists at once, settles order and ties together. Other types and long lists are sorted.

    Shapes:
        - **weight** (\\*, m, \\*)
        - **returns** values and positions (\\*, s, \\*); slots beyond m have value 0 and position 0
    """
    size = weight.size(dim)
    run = 1 << (s - 1).bit_length()  # sorted runs have a power of two members
    if weight.dtype != torch.float32 or run > 16 or size > _SPARE_BITS:
        value, position = weight.sort(dim=dim, descending=True, stable=True)
        value, position = value.narrow(dim, 0, min(s, size)), position.narrow(dim, 0, min(s, size))
        if size < s:
            missing = list(value.shape)
            missing[dim] = s - size
            value = torch.cat([value, value.new_zeros(missing)], dim)
            position = torch.cat([position, position.new_zeros(missing)], dim)
        return value, position

    padded = list(weight.shape)
    padded[dim] = -(-size // run) * run
    key = weight.new_zeros(padded, dtype=torch.float64)
    key.narrow(dim, 0, size).copy_(weight)
    shape = [1] * weight.dim()
    shape[dim] = size
    code = _SPARE_BITS - torch.arange(size, device=weight.device).view(shape)  # the earlier, the larger
    key.view(torch.int64).narrow(dim, 0, size).bitwise_or_(code)
    bits = torch.cat(_tournament(key, run, dim)[:s], dim).view(torch.int64)
    position = (_SPARE_BITS - (bits & _SPARE_BITS)).clamp_(max=max(size - 1, 0))
    return (bits & ~_SPARE_BITS).view(torch.float64).to(weight.dtype), position


def _tournament(x: Tensor, length: int, dim: int) -> list[Tensor]:
    """Place 1, 2, …, `length` of every list, each with size 1 along `dim`."""
    runs, spare = [x], None
    while len(runs) < length:
        low, high = _halves(runs, dim)
        runs = _sort_bitonic([*low, *reversed(high)])
    while runs[0].size(dim) > 1:
        if runs[0].size(dim) % 2:
            last = [run.narrow(dim, -1, 1) for run in runs]
            spare = last if spare is None else _merge(spare, last)
        runs = _merge(*_halves(runs, dim))
    return runs if spare is None else _merge(runs, spare)


def _halves(runs: list[Tensor], dim: int) -> tuple[list[Tensor], list[Tensor]]:
    half = runs[0].size(dim) // 2
    return [run.narrow(dim, 0, half) for run in runs], [run.narrow(dim, half, half) for run in runs]


def _merge(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
    """The larger half of two sorted runs, sorted."""
    return _sort_bitonic([torch.maximum(x, y) for x, y in zip(a, reversed(b), strict=True)])


def _sort_bitonic(x: list[Tensor]) -> list[Tensor]:
    if len(x) == 1:
        return x
    half = len(x) // 2
    pairs = list(zip(x[:half], x[half:], strict=True))
    return [
        *_sort_bitonic([torch.maximum(a, b) for a, b in pairs]),
        *_sort_bitonic([torch.minimum(a, b) for a, b in pairs]),
    ]

"""Who points to a row: sums over pointers into a row without atomics, in a fixed order."""

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 32
"""Where CHUNK pointers in a row, from a multiple of CHUNK on, name the same row, kernels may sum them beforehand: a
row that everybody points to is then no longer than others."""


class ReverseIndex(NamedTuple):
    """Pointers sorted by the row that they name, as int32.

    Shapes:
        - **pointer** (E) which pointer, those of one row in their order; **row** (E) the row that it names
        - **start** (rows + 1) where those of each row begin
    """

    pointer: Tensor
    row: Tensor
    start: Tensor

    @property
    def num_chunks(self) -> int:
        return self.pointer.numel() // CHUNK


def reverse_index(row: Tensor, size: int) -> ReverseIndex:
    """Sorts; nothing waits for the device.

    Args:
        row: Where each pointer goes; `size` for one that counts nowhere.
        size: Number of rows.

    Shapes:
        - **row** (E), int32
    """
    value, order = row.sort(stable=True)
    start = torch.searchsorted(value, torch.arange(size + 1, dtype=row.dtype, device=row.device), out_int32=True)
    return ReverseIndex(order.int(), value, start)


def named_rows(index: Tensor, empty: Tensor, size: int) -> tuple[Tensor, int]:
    """The row of a flat table (batch, size, channel) that each pointer names, as `reverse_index` takes it.

    Shapes:
        - **index** (B, n, channels, s), int32; **empty** (B, n, channels, s), bool
        - **returns** (B·n·channels·s) and the number of rows, B·size·channels
    """
    batch, _, channels, _ = index.shape
    rows = batch * size * channels
    first = torch.arange(batch, dtype=torch.int32, device=index.device).view(-1, 1, 1, 1) * (size * channels)
    channel = torch.arange(channels, dtype=torch.int32, device=index.device).unsqueeze(-1)
    return (index * channels + channel + first).masked_fill_(empty, rows).flatten(), rows

"""Who points to a row: sums over pointers into a row without atomics, in a fixed order."""

import torch
from torch import Tensor


def reverse_index(row: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Sorts pointers by the row that they name; those of one row keep their order. Nothing waits for the device.

    Args:
        row: Where each pointer goes; `size` or more for one that counts nowhere.
        size: Number of rows.

    Shapes:
        - **row** (E), int32
        - **returns** the pointers in order (E) and where each row's begin (size + 1), both int32
    """
    value, order = row.sort(stable=True)
    start = torch.searchsorted(value, torch.arange(size + 1, dtype=row.dtype, device=row.device), out_int32=True)
    return order.int(), start

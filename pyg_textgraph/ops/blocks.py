"""Work on a few rows at a time."""

import torch

BLOCK = 1 << 19  # elements of the largest temporary of a block: it stays in a core's cache


def row_blocks(rows: int, width: int, device: torch.device) -> list[slice]:
    """Consecutive rows in blocks of about ``BLOCK`` elements on a CPU, and of 64 times as many elsewhere."""
    step = max(1, BLOCK * (1 if device.type == "cpu" else 64) // max(width, 1))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]

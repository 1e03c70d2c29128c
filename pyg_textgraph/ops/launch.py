"""A Triton kernel with everything that it takes, as a value: it can be run here or compiled for another machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """Tile sizes and what hides latency."""

    rows: int
    keys: int = 1
    warps: int = 4
    stages: int = 2


@dataclass(frozen=True)
class Launch:
    """A kernel with everything that it takes."""

    kernel: Any
    grid: tuple[int, ...]
    args: dict[str, Any]
    blocks: Blocks

    def __call__(self) -> None:
        if all(self.grid):
            tensor = next(x for x in self.args.values() if isinstance(x, Tensor))
            with torch.cuda.device_of(tensor):  # not always the current GPU
                self.kernel[self.grid](**self.args, num_warps=self.blocks.warps, num_stages=self.blocks.stages)

"""How a model is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainConfig:
    """Settings of :class:`~pyg_textgraph.train.Trainer`.

    Args:
        epochs: Passes over the data.
        batch_size: Graphs per optimizer step and accumulation part.
        accumulate: Batches per optimizer step.
        warmup: Share of all steps in which the rate rises from 0.
        final_lr: Where the cosine ends, as a share of the highest rate.
        clip: Largest norm of the gradient; None does not clip.
        seed: Of the order of the data and of dropout.
        validate_every: Optimizer steps between validations; None validates after every epoch.
        save_every: Optimizer steps between checkpoints.
        num_workers: Processes that load data.
        bf16: Whether products are computed in bfloat16 while parameters keep their type (autocast).
        tensorboard: Whether to log for TensorBoard, in the folder ``tensorboard``, besides ``log.csv``.
    """

    epochs: int = 1
    batch_size: int = 8
    accumulate: int = 1
    warmup: float = 0.1
    final_lr: float = 0.1
    clip: float | None = 1.0
    seed: int = 0
    validate_every: int | None = None
    save_every: int = 50
    num_workers: int = 0
    bf16: bool = False
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"TrainConfig: '{name}' is {getattr(self, name)}, expected at least 1")
        for name in ("warmup", "final_lr"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"TrainConfig: '{name}' is {getattr(self, name)}, expected a share in [0, 1]")

    def rate(self, step: int, num_steps: int) -> float:
        """The factor on every learning rate at a step: linear warm-up, then a cosine down to ``final_lr``."""
        warmup = round(self.warmup * num_steps)
        if step < warmup:
            return (step + 1) / warmup
        progress = (step - warmup) / max(1, num_steps - warmup)
        return self.final_lr + (1 - self.final_lr) * 0.5 * (1 + math.cos(math.pi * progress))

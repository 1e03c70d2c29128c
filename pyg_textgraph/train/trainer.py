"""One training loop for every benchmark."""

from __future__ import annotations

import csv
import math
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_geometric.loader import DataLoader
from tqdm import tqdm

from pyg_textgraph.train.checkpoint import (
    has_checkpoint,
    load_checkpoint,
    load_trained,
    save_checkpoint,
    trained_parameters,
)
from pyg_textgraph.train.config import TrainConfig

_MAY_CHANGE = ("save_every", "num_workers", "tensorboard")


class Interrupted(Exception):
    """Training was asked to stop; its checkpoint is whole and resumes at the next step."""


class Trainer:
    """Trains a model on a map-style data set of graphs, and can be stopped and resumed at any step.

    The order of the data depends on the seed and the epoch only, and what items draw from torch's random numbers on the
    step, so a resumed run goes on as if nothing had happened (with ``num_workers``, if items are not random). The parts
    of an accumulated step weigh as much as they have supervised tokens (or graphs, if a part has none), so that
    a mean over tokens is the same in parts as at once.

    Args:
        model: Called with a batch; returns the loss, or something with ``.loss``.
        dataset: Graphs; its ``set_epoch``, where there is one, is called before every epoch.
        optimizer: Over the model's parameters. Every group's rate is multiplied by :meth:`TrainConfig.rate`.
        config: Everything else.
        folder: Where checkpoints (``last``, ``best``) and logs go.
        validate: Gives a score, higher is better; the parameters of the best one are kept.
        name: Shown on the progress bar; None shows none.
    """

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset[Any],
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        folder: str | Path,
        validate: Callable[[nn.Module], float] | None = None,
        name: str | None = "training",
    ) -> None:
        self.model, self.dataset, self.optimizer, self.config = model, dataset, optimizer, config
        self.folder, self.validate, self.name = Path(folder), validate, name
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]
        batches = -(-len(dataset) // config.batch_size)  # type: ignore[arg-type]
        self.steps_per_epoch = -(-batches // config.accumulate)
        self.num_steps = config.epochs * self.steps_per_epoch
        if self.num_steps == 0:
            raise ValueError("Trainer: 'dataset' is empty, expected at least one graph")
        self.writes = True  # of several processes, one does
        self.step = 0
        self.best: float | None = None
        self.history: list[dict[str, float]] = []

    def run(self, resume: bool = False) -> list[dict[str, float]]:
        """Trains to the end, then puts the best parameters back if there was validation.

        Args:
            resume: Whether to go on from the folder's checkpoint, if there is one; without, that of an earlier run is
                removed.

        Returns:
            One row per step with ``step``, ``epoch``, ``loss``, ``rate`` and, where it was measured, ``score``.

        Raises:
            Interrupted: After Ctrl-C or SIGTERM, once the step is finished and saved.
            ValueError: If the checkpoint is that of another configuration or other learning rates, or in a step
                nothing is supervised.
        """
        torch.manual_seed(self.config.seed)
        self._begin(resume)
        self.model.train()
        bar = tqdm(total=self.num_steps, initial=self.step, desc=self.name, disable=self.name is None)
        with stop_signals() as stopped, bar, self._tensorboard() as log, self._rates_put_back():
            while self.step < self.num_steps:
                for batches in self._epoch(self.step // self.steps_per_epoch):
                    row = self._update(batches)
                    every = self.config.validate_every or self.steps_per_epoch
                    if self.validate is not None and (self.step % every == 0 or self.step == self.num_steps):
                        row["score"] = self._validate()
                    self.history.append(row)
                    log(row)
                    bar.update()
                    bar.set_postfix(loss=f"{row['loss']:.3f}", best=self.best, refresh=False)
                    stop = self._asked_to_stop(stopped)
                    if stop or self.step % self.config.save_every == 0 or self.step == self.num_steps:
                        self._save()
                    if stop and self.step < self.num_steps:
                        raise Interrupted(f"{self.name} stopped at step {self.step} of {self.num_steps}")
        if self.best is not None:
            load_trained(self.model, load_checkpoint(self.folder / "best")[0])
        return self.history

    def _begin(self, resume: bool) -> None:
        if not resume and self.step == 0:  # not of its own
            for name in ("last", "best"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        if resume and has_checkpoint(self.folder / "last"):
            self._load()

    def _asked_to_stop(self, stopped: threading.Event) -> bool:
        return stopped.is_set()

    @contextmanager
    def _rates_put_back(self) -> Iterator[None]:
        """The optimizer's rates are its own again afterwards, for another run with it."""
        try:
            yield
        finally:
            for group, full in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = full

    def _epoch(self, epoch: int) -> Iterator[list[Any]]:
        """The rest of an epoch: the batches of one optimizer step at a time."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        config = self.config
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.dataset), generator=generator)  # type: ignore[arg-type]
        done = (self.step - epoch * self.steps_per_epoch) * config.batch_size * config.accumulate
        loader = DataLoader(
            self.dataset, batch_size=config.batch_size, sampler=order[done:].tolist(), num_workers=config.num_workers
        )
        batches = iter(loader)
        while True:
            torch.manual_seed(config.seed * 1_000_003 + self.step + (1 << 40))  # items may be random
            if not (group := list(islice(batches, config.accumulate))):
                return
            yield group

    def _update(self, batches: list[Any]) -> dict[str, float]:
        epoch = self.step / self.steps_per_epoch
        rate = self.config.rate(self.step, self.num_steps)
        for group, full in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = full * rate
        self.optimizer.zero_grad()
        # dropout depends on the step alone, so that a resumed run draws what an unbroken one would have
        torch.manual_seed(self.config.seed * 1_000_003 + self.step)
        total, used = 0.0, 0
        sizes = _sizes(batches)
        for batch, size in zip(batches, sizes, strict=True):
            with self._autocast():
                out = self.model(batch.to(self._device()))
            loss: Tensor | None = out if isinstance(out, Tensor) else out.loss
            if loss is not None:
                loss = loss * (size / sum(sizes))
                loss.backward()
                total, used = total + float(loss.detach()), used + size
        if not used:
            raise ValueError(
                f"Trainer: in step {self.step + 1} nothing is supervised, expected a label in one of its graphs; leave "
                "graphs without labels out of 'dataset'"
            )
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        if used < sum(sizes):  # a part without a loss weighs nothing
            total *= sum(sizes) / used
            for parameter in trained:
                if parameter.grad is not None:
                    parameter.grad *= sum(sizes) / used
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(trained, self.config.clip)
        self.optimizer.step()
        self.step += 1
        return {"step": self.step, "epoch": epoch, "loss": total, "rate": rate}

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device().type, torch.bfloat16, enabled=self.config.bf16)

    @contextmanager
    def _tensorboard(self) -> Iterator[Callable[[dict[str, float]], None]]:
        """Gives a function that logs a row; it does nothing unless TensorBoard is asked for."""
        if not (self.config.tensorboard and self.writes):
            yield lambda row: None
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "Trainer: 'tensorboard' is True, which needs TensorBoard; pip install 'pyg-textgraph[tensorboard]'"
            ) from error
        # what an interrupted run logged after its last checkpoint is logged again
        with SummaryWriter(str(self.folder / "tensorboard"), purge_step=self.step + 1) as writer:

            def log(row: dict[str, float]) -> None:
                step = int(row["step"])
                for key in ("loss", "score"):
                    if key in row:
                        writer.add_scalar(key, row[key], step)
                for place, group in enumerate(self.optimizer.param_groups):
                    writer.add_scalar(f"learning rate/{group.get('name', place)}", group["lr"], step)

            yield log

    def _validate(self) -> float:
        assert self.validate is not None
        self.model.eval()
        with self._autocast():
            score = float(self.validate(self.model))
        self.model.train()
        if self.best is None or math.isnan(self.best) or score > self.best:
            self.best = score
            if self.writes:
                save_checkpoint(
                    self.folder / "best", trained_parameters(self.model), {"step": self.step, "score": score}
                )
        return score

    def _save(self) -> None:
        if not self.writes:
            return
        state = {"step": self.step, "best": self.best, "history": self.history, "num_steps": self.num_steps,
                 "about": self._about(), "optimizer": self.optimizer.state_dict()}  # fmt: skip
        save_checkpoint(self.folder / "last", trained_parameters(self.model), state)
        with open(self.folder / "log.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ["step", "epoch", "loss", "rate", "score"])
            writer.writeheader()
            writer.writerows(self.history)

    def _about(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one it goes on."""
        told = {key: value for key, value in asdict(self.config).items() if key not in _MAY_CHANGE}
        return told | {"learning rates": self.rates}

    def _load(self) -> None:
        parameters, state = load_checkpoint(self.folder / "last")
        if state["num_steps"] != self.num_steps:
            raise ValueError(
                f"Trainer: the checkpoint in {self.folder} is of a run of {state['num_steps']} steps, this one has "
                f"{self.num_steps}; use the same data and configuration, or another folder"
            )
        about, now = state.get("about", {}), self._about()
        if other := next((key for key in about if about[key] != now.get(key)), None):
            raise ValueError(
                f"Trainer: the checkpoint in {self.folder} is of a run with {other} {about[other]!r}, this one has "
                f"{now.get(other)!r}; use the same configuration, or another folder"
            )
        load_trained(self.model, parameters)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.best, self.history = state["step"], state["best"], state["history"]


def _sizes(batches: list[Any]) -> list[int]:
    """How much each part of a step weighs: its supervised tokens, or its graphs."""
    labels = [getattr(batch, "labels", None) for batch in batches]
    supervised = [int((x >= 0).sum()) if isinstance(x, Tensor) else 0 for x in labels]
    return supervised if min(supervised) else [int(getattr(batch, "num_graphs", 1)) for batch in batches]


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turns the first Ctrl-C or SIGTERM into a set event, so that the step is finished; a second acts as usual."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        event.set()
        for sig, handler in before.items():
            signal.signal(sig, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield event
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)

"""The training loop of the Graph Machine's benchmarks: the published recipe, resumable, alone or under torchrun."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.graph_machine.variants import VARIANTS, small_config
from pyg_textgraph.nn import GraphMachineLM
from pyg_textgraph.train.checkpoint import (
    has_checkpoint,
    load_checkpoint,
    load_trained,
    save_checkpoint,
    trained_parameters,
)

Batch = tuple[Tensor, Tensor]
"""Token ids and labels (b, n), −100 where nothing is predicted."""
QUARTERS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Recipe:
    """The paper's, but for the number of steps (GM-2, arXiv 2609.02881, section 4)."""

    steps: int
    learning_rate: float = 1e-3
    warmup: int = 1000
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    clip: float = 1.0
    bfloat16: bool = False
    save_every: int = 50

    def rate(self, step: int) -> float:
        """Linear warm-up, then linear decay to zero."""
        return min((step + 1) / max(1, self.warmup), (self.steps - step) / max(1, self.steps - self.warmup))


def new_parser(doc: str | None, **defaults: int | float) -> argparse.ArgumentParser:
    """The command line of a run: sizes of the model and the recipe, with a task's own defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=VARIANTS, default="hyperion-r3")
    parser.add_argument("--width", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--edges", type=int, default=16)
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint and report; an old run there goes on")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--batch-size", type=int, help="sequences per step, over all processes")
    parser.add_argument("--seed", type=int, default=0, help="of the weights; the data's order is always the same")
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations")
    parser.set_defaults(**defaults)
    return parser


def train(
    args: argparse.Namespace,
    batch_of: Callable[[int], Batch],
    evaluate: Callable[[GraphMachineLM], Any],
    metric: str,
    vocab_size: int,
    *,
    head_dim: int = 64,
    quarters: bool = False,
) -> None:
    """A whole run from its command line; evaluates at the end, or after every quarter of the steps."""
    sizes = {"width": args.width, "layers": args.layers, "edges": args.edges}
    torch.manual_seed(args.seed)
    model = GraphMachineLM(small_config(args.variant, **sizes, vocab_size=vocab_size, head_dim=head_dim))
    if args.checkpointing:
        model.gradient_checkpointing_enable()
    args.folder.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(args.steps, args.learning_rate, args.warmup, bfloat16=args.bfloat16)
    name = {"variant": args.variant, "seed": args.seed, "batch_size": args.batch_size} | sizes
    outcome = fit(model, batch_of, evaluate, recipe, args.folder, QUARTERS if quarters else (1.0,), name)
    if not quarters:
        outcome["measured"] = outcome["measured"]["100%"]
    if is_first_process():
        write_report(metric, model, outcome, args)


def write_report(metric: str, model: GraphMachineLM, outcome: dict[str, Any], args: argparse.Namespace) -> None:
    """``report.json`` of a finished run, which compare.py reads, and its model."""
    report = {
        "variant": args.variant,
        "seed": args.seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": args.steps,
        metric: outcome["measured"],
        "seconds": round(outcome["seconds"], 1),
        "tokens_per_second": round(outcome["tokens_per_second"]),
        "arguments": {name: str(value) for name, value in vars(args).items()},
    }
    (args.folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    model.save_pretrained(args.folder / "model")
    tqdm.write(json.dumps(report))


def is_first_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def start_processes() -> tuple[int, int, torch.device]:
    """Rank, world size and device; joins the group that torchrun started."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    return int(os.environ.get("RANK", "0")), world, torch.device("cuda", local) if cuda else torch.device("cpu")


def optimizer_of(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW without decay on one-dimensional parameters."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas)


def fit(
    model: GraphMachineLM,
    batch_of: Callable[[int], Batch],
    evaluate: Callable[[GraphMachineLM], Any],
    recipe: Recipe,
    folder: Path,
    fractions: tuple[float, ...] = QUARTERS,
    name: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains, and evaluates after the given fractions of all steps.

    Everything random is a function of the step, so a run that was stopped and started again is the same run.

    Args:
        model: Freshly initialized.
        batch_of: The batch of a step; processes share it evenly.
        evaluate: What is measured.
        recipe: How to train.
        folder: Where the checkpoint lives.
        fractions: When to evaluate.
        name: What tells this run from others beside its recipe; a checkpoint of another one is refused.

    Returns:
        The measurements by fraction, ``"25%"`` …, and training seconds and tokens per second of all processes.
    """
    rank, world, device = start_processes()
    about = (name or {}) | {key: value for key, value in asdict(recipe).items() if key != "save_every"}
    if batch_of(0)[0].size(0) % world:
        raise ValueError(f"training: a batch of {batch_of(0)[0].size(0)} does not divide among {world} processes")
    model.to(device)
    optimizer = optimizer_of(model, recipe)
    step, seconds, measured = 0, 0.0, {}
    if has_checkpoint(folder / "checkpoint"):
        parameters, state = load_checkpoint(folder / "checkpoint")
        with torch.no_grad():
            load_trained(model, parameters)
        optimizer.load_state_dict(state["optimizer"])
        if (other := state.get("about", about)) != about:
            raise ValueError(
                f"training: the checkpoint in {folder} is of {other}, expected {about}; use another folder"
            )
        step, seconds, measured = state["step"], state["seconds"], state["measured"]
    runner = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    points = {max(1, round(fraction * recipe.steps)): f"{fraction:.0%}" for fraction in fractions}
    tokens = batch_of(0)[0].numel()
    bar = tqdm(total=recipe.steps, initial=step, disable=rank > 0, smoothing=0.05)
    while step < recipe.steps:
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * recipe.rate(step)
        model.train()
        ids, labels = (t.tensor_split(world)[rank].to(device) for t in batch_of(step))
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bfloat16):
            loss = runner(input_ids=ids, labels=labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        value = loss.item()
        if value != value:
            raise FloatingPointError(f"the loss is not a number at step {step}; the last checkpoint is in {folder}")
        seconds += time.perf_counter() - begin
        bar.set_postfix_str(f"loss {value:.3f}, {tokens / (time.perf_counter() - begin):.0f} tokens/s", refresh=False)
        bar.update()
        if step in points and rank == 0:
            measured[points[step]] = evaluate(model.eval())
        if (step % recipe.save_every == 0 or step in points) and rank == 0:
            state = {"optimizer": optimizer.state_dict(), "step": step, "seconds": seconds, "measured": measured}
            state["about"] = about
            save_checkpoint(folder / "checkpoint", trained_parameters(model), state)
    bar.close()
    if world > 1:
        dist.destroy_process_group()
    return {"measured": measured, "seconds": seconds, "tokens_per_second": tokens * recipe.steps / seconds}

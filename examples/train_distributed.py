"""Trains a GTLM on WordNet's verbs in any number of processes; a stopped run goes on with another number of them.

    python examples/train_distributed.py --folder runs/verbs
    torchrun --nproc-per-node 8 examples/train_distributed.py --folder runs/verbs
    accelerate launch --multi_gpu --num_processes 8 examples/train_distributed.py --folder runs/verbs --fsdp

``--batch-size`` is that of all processes together, so their number changes the speed and nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_geometric.transforms as T
from accelerate import Accelerator
from peft import LoraConfig
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from tqdm import tqdm

from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.sampling import EgoTextDataset
from pyg_textgraph.train import TrainConfig, gather_state, joint_loss, mean_over_processes, restore_state, shard
from pyg_textgraph.train.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, EgoTextSampler


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint and model; a run in there goes on")
    parser.add_argument("--base", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="the language model")
    parser.add_argument(
        "--fsdp", action="store_true", help="shard parameters (FSDP2) instead of replicating them (DDP)"
    )
    parser.add_argument("--nodes", type=int, default=None, help="train on so many nodes only")
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=64, help="of one node's text")
    parser.add_argument("--batch-size", type=int, default=16, help="of all processes together")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--bias-lr", type=float, default=2e-2)
    parser.add_argument("--rank", type=int, default=32, help="of the LoRA adapters")
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=0, help="that sample and tokenize, per process")
    parser.add_argument("--save-every", type=int, default=100, help="optimizer steps")
    parser.add_argument("--stop-after", type=int, default=None, help="optimizer steps, to go on another time")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


def batches(
    egos: EgoTextDataset, order: DistributedSampler[Any], epoch: int, skip: int, share: int, workers: int
) -> Iterator[Any]:
    """This process's share of every joint batch of an epoch, without the first ones.

    The sampler deals out one order of the nodes like cards, so the shares of a step add up to the same joint batch
    however many processes there are.
    """
    egos.set_epoch(epoch)
    order.set_epoch(epoch)
    return iter(DataLoader(egos, share, sampler=list(order)[skip * share :], num_workers=workers))


def main(given: Sequence[str] | None = None) -> None:
    args = arguments(given)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    rank, ranks = accelerator.process_index, accelerator.num_processes
    if args.batch_size % ranks:
        raise SystemExit(f"--batch-size is {args.batch_size}, which does not divide among {ranks} processes")

    torch.manual_seed(args.seed)  # the same adapters in every process
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, lora_dropout=args.dropout)
    model = GTLM.from_pretrained(args.base, lora=lora).to(accelerator.device).train()
    data = WordNetVerbs()[0]
    egos = EgoTextSampler(args.neighbors, num_hops=2, seed=args.seed).dataset(
        data,
        data.train_mask.nonzero().view(-1)[: args.nodes],
        model.tokenizer,
        question="Which class is this verb?",
        max_target_tokens=args.max_tokens,
        max_neighbor_tokens=args.max_tokens,
        transform=T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)]),
    )
    if args.fsdp:
        runner: torch.nn.Module = shard(model)
        optimizer = torch.optim.AdamW(model.param_groups(args.lr, args.bias_lr))
    else:
        optimizer = torch.optim.AdamW(model.param_groups(args.lr, args.bias_lr))
        runner = accelerator.prepare_model(model)  # DDP where there are several processes

    last = args.folder / "last"
    step, losses = 0, []
    if has_checkpoint(last):
        parameters, state = load_checkpoint(last)
        restore_state(runner, optimizer, parameters, state["optimizer"])
        step, losses = state["step"], state["losses"]
    # an order that does not divide among the processes is filled up with its first nodes
    order: DistributedSampler[Data] = DistributedSampler(egos, ranks, rank, shuffle=True, seed=args.seed)
    share, steps_per_epoch = args.batch_size // ranks, -(-len(egos) // args.batch_size)
    num_steps = args.epochs * steps_per_epoch
    stop = min(num_steps, args.stop_after or num_steps)
    config, rates = TrainConfig(seed=args.seed), [group["lr"] for group in model.param_groups(args.lr, args.bias_lr)]

    with tqdm(total=num_steps, initial=step, disable=not accelerator.is_main_process) as bar:
        while step < stop:
            epoch, skip = divmod(step, steps_per_epoch)
            for batch in batches(egos, order, epoch, skip, share, args.workers):
                for group, full in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = full * config.rate(step, num_steps)
                torch.manual_seed((args.seed * 1_000_003 + step) * ranks + rank)  # of dropout, also after a stop
                loss = joint_loss(runner(batch.to(accelerator.device)))
                loss.backward()
                torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                losses.append(mean_over_processes(loss))
                bar.update()
                bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
                if step % args.save_every == 0 or step == stop:
                    parameters, optimizer_state = gather_state(runner, optimizer)  # in all processes
                    if accelerator.is_main_process:
                        save_checkpoint(
                            last, parameters, {"optimizer": optimizer_state, "step": step, "losses": losses}
                        )
                if step == stop:
                    break
    parameters, _ = gather_state(runner, optimizer)
    if accelerator.is_main_process:
        model.save_pretrained(args.folder / "model", state_dict=parameters)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

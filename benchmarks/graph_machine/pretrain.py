"""Pretrains a small Graph Machine, or its dense counterpart, on text; stops and resumes anywhere.

python -m benchmarks.graph_machine.pretrain --variant hyperion-r3 --seed 0 --folder runs/graph_machine/hyperion-r3-0
torchrun --nproc-per-node 2 -m benchmarks.graph_machine.pretrain --variant dense --folder runs/graph_machine/dense-0
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.graph_machine.text import documents, packed, train_tokenizer
from benchmarks.graph_machine.training import Batch, is_first_process, new_parser, train
from pyg_textgraph.nn import GraphMachineLM

HELD_OUT = 0.03  # share of the sequences


def batch_of(step: int, rows: Tensor, size: int) -> Batch:
    """The sequences of a step, in a new order every pass."""
    steps = len(rows) // size  # of a pass
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(step // steps))
    ids = rows[order[step % steps * size :][:size]]
    return ids, ids  # every token but the padding token at the start is predicted


@torch.no_grad()
def held_out_loss(model: GraphMachineLM, rows: Tensor, size: int) -> float:
    """Mean over all tokens, in nats."""
    total = 0.0
    for ids in rows.to(model.device).split(size):
        total += model(ids, labels=ids).loss.item() * len(ids)
    return total / len(rows)


def main() -> None:
    parser = new_parser(__doc__, width=256, layers=8, warmup=40, learning_rate=1e-3, batch_size=8)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="text files, or folders of them")
    parser.add_argument("--dataset", type=Path, help="a folder that Hugging Face's Dataset.save_to_disk wrote")
    parser.add_argument("--wordnet", type=Path, help="a folder with WordNet's database; by default its verbs only")
    args = parser.parse_args()

    texts = documents(args.text, args.dataset, args.wordnet)
    tokenizer = train_tokenizer(texts, args.vocab_size)
    rows = packed(texts, tokenizer, args.length)
    held = max(1, round(HELD_OUT * len(rows)))
    if len(rows) - held < args.batch_size:
        parser.error(f"the text gives {len(rows)} sequences of {args.length} tokens: too few for a batch")
    train(
        args,
        partial(batch_of, rows=rows[held:], size=args.batch_size),
        partial(held_out_loss, rows=rows[:held], size=args.batch_size),
        "loss",
        len(tokenizer),
        quarters=True,
    )
    if is_first_process():
        tokenizer.save_pretrained(args.folder / "model")


if __name__ == "__main__":
    main()

"""Pointer chasing: every token jumps back or holds a colour; which colour do its jumps end at?

Attention follows one jump per layer; a referral composes pointers, so r of them follow 2^r jumps.

python -m benchmarks.graph_machine.chase --variant hyperion-r3 --seed 0 --folder runs/chase/hyperion-r3-0
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.graph_machine.training import Batch, new_parser, train
from pyg_textgraph.nn import GraphMachineLM

COLOURS, REACH = 8, 7  # by default; the longest jump is REACH
TEST_SEED = 1 << 40  # far from all training steps
DEPTHS = {
    "1 jump": (1, 1),
    "2 jumps": (2, 2),
    "3–4 jumps": (3, 4),
    "5–8 jumps": (5, 8),
    "9–16 jumps": (9, 16),
    "17 jumps or more": (17, 10**9),
}


def follow(back: Tensor) -> tuple[Tensor, Tensor]:
    """Where the jumps of every token end, and after how many.

    Args:
        back: How far every token jumps back, 0 where it stays.

    Shapes:
        - **back** (b, n)
        - **returns** positions and numbers of jumps, each (b, n)
    """
    place, depth = torch.arange(back.size(1)) - back, (back > 0).long()
    while (further := depth.gather(1, place)).any():
        depth, place = depth + further, place.gather(1, place)
    return place, depth


def puzzles(seed: int, size: int, length: int, colours: int, reach: int, roots: float) -> Batch:
    """Sequences of a padding token and ``length`` tokens that hold a colour (1 … colours) or jump (beyond).

    The label of a token is the colour where its jumps end. As labels belong to the *next* position, they stand one
    to the right, and the last token has none.

    Args:
        seed: Of the sequences.
        size: How many.
        length: Tokens of each, without padding.
        colours: How many colours there are.
        reach: The longest jump.
        roots: Share of the tokens that hold a colour; the first one always does.

    Shapes:
        - **returns** ids and labels (size, 1 + length)
    """
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(size, length, generator=generator)
    back = (share * torch.arange(length).clamp(max=reach)).long() + 1  # uniform among earlier tokens within reach
    back[torch.rand(size, length, generator=generator) < roots] = 0
    back[:, 0] = 0
    colour = torch.randint(1, colours + 1, (size, length), generator=generator)
    ids = torch.where(back > 0, colours + back, colour)
    reached = colour.gather(1, follow(back)[0])
    return F.pad(ids, (1, 0)), F.pad(reached, (2, 0), value=-100)[:, :-1]


@torch.no_grad()
def accuracy(model: GraphMachineLM, ids: Tensor, labels: Tensor, colours: int, size: int) -> dict[str, float]:
    """Share of right colours by the number of jumps to them, and of all tokens that jump."""
    guess = torch.cat([model(part.to(model.device)).logits[:, 1:-1].argmax(-1).cpu() for part in ids.split(size)])
    right = guess == labels[:, 2:]
    depth = follow((ids[:, 1:] - colours).clamp(min=0))[1][:, :-1]
    bounds = {"all": (1, ids.size(1))} | DEPTHS
    hits = {name: right[(depth >= low) & (depth <= high)] for name, (low, high) in bounds.items()}
    return {name: hit.float().mean().item() for name, hit in hits.items() if hit.numel()}


def main() -> None:
    parser = new_parser(__doc__, width=128, layers=4, warmup=50, learning_rate=2e-3, batch_size=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--colours", type=int, default=COLOURS)
    parser.add_argument("--reach", type=int, default=REACH, help="the longest jump")
    parser.add_argument("--roots", type=float, default=0.15, help="share of the tokens that hold a colour")
    parser.add_argument("--test-size", type=int, default=256)
    args = parser.parse_args()

    task = {"length": args.length, "colours": args.colours, "reach": args.reach, "roots": args.roots}
    ids, labels = puzzles(TEST_SEED, args.test_size, **task)
    train(
        args,
        partial(puzzles, size=args.batch_size, **task),
        partial(accuracy, ids=ids, labels=labels, colours=args.colours, size=args.batch_size),
        "accuracy",
        1 + args.colours + args.reach,
        head_dim=32,
    )


if __name__ == "__main__":
    main()

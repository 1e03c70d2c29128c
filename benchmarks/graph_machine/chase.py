"""Pointer chasing: after a shuffled list of arrows x → f(x) come questions, where do k steps from x lead?

Each further step needs one more look-up, or one referral that follows pointers of pointers.

python -m benchmarks.graph_machine.chase --variant hyperion-r3-s --seed 0 --folder runs/chase/hyperion-r3-s-0
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch import Tensor

from benchmarks.graph_machine.training import Batch, add_recipe, fit, new_model, recipe_of, write_report
from benchmarks.graph_machine.variants import VARIANTS, small_config
from pyg_textgraph.nn import GraphMachineLM

TEST_SEED = 1 << 40  # far from all training steps


def puzzles(seed: int, size: int, nodes: int, hops: int, questions: int) -> Batch:
    """Sequences ``pad, (x, f(x)) …, (k, x, answer) …`` of a random permutation f; only answers have labels.

    Token 0 pads, 1 … hops say k, and nodes follow.

    Shapes:
        - **returns** ids and labels (size, 1 + 2·nodes + 3·questions)
    """
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(size, nodes, generator=generator).argsort(-1)  # [b, nodes], f
    order = torch.rand(size, nodes, generator=generator).argsort(-1)
    arrows = torch.stack([order, image.gather(1, order)], -1).flatten(1)
    count = torch.randint(1, hops + 1, (size, questions), generator=generator)
    start = torch.randint(nodes, (size, questions), generator=generator)
    reached = [start]
    for _ in range(hops):
        reached.append(image.gather(1, reached[-1]))
    answer = torch.stack(reached, -1).gather(-1, count.unsqueeze(-1)).squeeze(-1)
    asked = torch.stack([count, start + hops + 1, answer + hops + 1], -1)
    ids = torch.cat([torch.zeros(size, 1, dtype=torch.long), arrows + hops + 1, asked.flatten(1)], -1)
    labels = torch.full_like(ids, -100)
    labels[:, 2 * nodes + 3 :: 3] = asked[..., 2]
    return ids, labels


@torch.no_grad()
def accuracy(model: GraphMachineLM, ids: Tensor, labels: Tensor, hops: int, size: int) -> dict[str, float]:
    """Share of right answers for every number of steps k, and for all."""
    right = torch.cat([model(part.to(model.device)).logits[:, :-1].argmax(-1).cpu() for part in ids.split(size)])
    asked = labels[:, 1:] != -100
    hit = (right == labels[:, 1:])[asked]
    steps = ids[:, :-2].masked_select(asked[:, 1:])  # k stands two tokens before the answer
    return {"all": hit.float().mean().item()} | {
        f"k={k}": hit[steps == k].float().mean().item() for k in range(1, hops + 1)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=VARIANTS, default="hyperion-r3-s")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--edges", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--hops", type=int, default=6)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32, help="sequences per step, over all processes")
    parser.add_argument("--test-size", type=int, default=256)
    add_recipe(parser, steps=2000, warmup=100)
    args = parser.parse_args()

    task = {"nodes": args.nodes, "hops": args.hops, "questions": args.questions}
    vocabulary = 1 + args.hops + args.nodes
    config = small_config(
        args.variant, width=args.width, layers=args.layers, edges=args.edges, vocab_size=vocabulary, head_dim=32
    )
    model = new_model(config, args)
    args.folder.mkdir(parents=True, exist_ok=True)
    ids, labels = puzzles(TEST_SEED, args.test_size, **task)
    outcome = fit(
        model,
        partial(puzzles, size=args.batch_size, **task),
        partial(accuracy, ids=ids, labels=labels, hops=args.hops, size=args.batch_size),
        recipe_of(args),
        args.folder,
    )
    outcome["measured"] = outcome["measured"]["100%"]
    write_report("accuracy", model, outcome, args)


if __name__ == "__main__":
    main()

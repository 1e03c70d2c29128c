"""Two processes train as one does with the joint batch."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from pyg_textgraph.nn import GraphFormers, KnownLinks
from pyg_textgraph.train import Interrupted, LinkObjective, LinkTrainer, TrainConfig
from pyg_textgraph.train.links import _Numbers
from tests.processes import leave_group
from tests.text_encoders import text_graph, tiny_encoder, tiny_text_tokenizer

DATA = text_graph(num_nodes=24, num_edges=60)


class Asked:
    """A stop signal that comes in one step."""

    def __init__(self, step: int) -> None:
        self.left = step

    def is_set(self) -> bool:
        self.left -= 1
        return self.left == 0


class Stopping(LinkTrainer):
    """Asked to stop in its second step, as the second rank alone."""

    asked = Asked(2)

    def _asked_to_stop(self, stopped: Any) -> bool:
        return super()._asked_to_stop(self.asked if self.rank == 1 else stopped)


def train(
    folder: Path, links: int = 21, kind: type[LinkTrainer] = LinkTrainer, resume: bool = False
) -> dict[str, Tensor]:
    """Three steps of plain gradient descent; 7 links a step do not divide by two."""
    encoder = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1)
    model = GraphFormers(encoder, tiny_text_tokenizer())
    objective = LinkObjective(model, KnownLinks(DATA.edge_index, 24), temperature=4.0)
    trainer = kind(
        DistributedDataParallel(objective) if dist.is_initialized() else objective,
        model.sampler(DATA, num_neighbors=3),
        DATA.edge_index[:, :links],
        torch.optim.SGD(model.parameters(), lr=0.1),
        TrainConfig(batch_size=7, clip=None),
        folder,
    )
    assert len(trainer.run(resume)) == 3
    return {name: p.detach() for name, p in model.named_parameters()}


def rank_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(train(Path(folder) / "two"), f"{folder}/{rank}.pt")
    train(Path(folder) / "left out", links=22)  # a last batch of one link would leave a rank without any
    with pytest.raises(Interrupted, match="stopped at step 2 of 3"):
        train(Path(folder) / "stopped", kind=Stopping)
    torch.save(train(Path(folder) / "stopped", resume=True), f"{folder}/resumed{rank}.pt")
    with pytest.raises(ValueError, match=r"the ranks go on from steps \[3, 0\]"):
        train(Path(folder) / ("stopped" if rank == 0 else "unseen"), resume=True)
    leave_group()


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    mp.start_processes(rank_of_two, (str(tmp_path),), nprocs=2, start_method="spawn")
    expected = train(tmp_path / "one")
    for rank in range(2):
        assert_close(torch.load(tmp_path / f"{rank}.pt"), expected)
        assert_close(torch.load(tmp_path / f"resumed{rank}.pt"), expected)
    start = GraphFormers(tiny_encoder(initializer_range=0.1), tiny_text_tokenizer())
    assert not torch.equal(expected["encoder.encoder.layer.0.attention.self.query.weight"],
                           start.encoder.encoder.layer[0].attention.self.query.weight)  # fmt: skip


def test_links_that_are_left_out_change_with_the_epoch() -> None:
    numbers = _Numbers(total=8, size=6)
    seen = []
    for epoch in range(4):
        numbers.set_epoch(epoch)
        seen.append({numbers[i] for i in range(len(numbers))})
    assert [len(epoch) for epoch in seen] == [6] * 4
    assert [set(range(8)) - epoch for epoch in seen] == [{6, 7}, {0, 1}, {2, 3}, {4, 5}]

"""Two processes train a GTLM as one does with the joint batch, and share what one of them saves."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch_geometric.data import Batch

from pyg_textgraph.data import append_to_target
from pyg_textgraph.nn import GTLM
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import text_graph
from tests.processes import leave_group

# two supervised tokens in every graph, so the mean of two halves is the mean of the whole
GRAPHS = [append_to_target(text_graph(3 + i, i), torch.tensor([7 + i, 2]), 2) for i in range(4)]


def train(base: Path, save: Path | None = None) -> tuple[list[float], dict[str, Tensor]]:
    """Three steps of plain gradient descent on this process's share of the graphs."""
    torch.manual_seed(0)
    model = GTLM.from_pretrained(base, lora=LoraConfig(r=2, lora_dropout=0.0, init_lora_weights=True))
    parallel = dist.is_initialized()
    rank, size = (dist.get_rank(), dist.get_world_size()) if parallel else (0, 1)
    wrapped = DistributedDataParallel(model) if parallel else model
    batch = Batch.from_data_list(GRAPHS[rank::size])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(3):
        loss = wrapped(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if parallel:
            dist.all_reduce(mean)
        losses.append(float(mean) / size)
    if save is not None and rank == 0:
        model.save_pretrained(save)
    return losses, {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def rank_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(train(Path(folder) / "base", Path(folder) / "saved"), f"{folder}/{rank}.pt")
    leave_group()


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path / "base")
    from tests.tiny import tiny_tokenizer

    tiny_tokenizer().save_pretrained(tmp_path / "base")
    mp.start_processes(rank_of_two, (str(tmp_path),), nprocs=2, start_method="spawn")
    losses, expected = train(tmp_path / "base")
    assert losses[2] < losses[0]
    assert any(bool(value.any()) for name, value in expected.items() if "graph_bias" in name)
    for rank in range(2):
        found, values = torch.load(tmp_path / f"{rank}.pt")
        assert_close(found, losses, rtol=1e-6, atol=0)
        assert_close(values, expected)
    # what the first process saved goes on in a single one
    loaded = GTLM.from_pretrained(tmp_path / "saved", trainable=True)
    assert_close({name: p.detach() for name, p in loaded.named_parameters() if p.requires_grad}, expected)

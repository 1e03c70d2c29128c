"""Sharded over two processes and with activation checkpointing, a GTLM gets the gradients that one process gets."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn import GTLM
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import randomize, text_graph
from tests.processes import leave_group


def make_model() -> GTLM:
    model = GTLM(tiny("llama"), lora=LoraConfig(r=2, init_lora_weights=False), checkpoint_bias=True).train()
    randomize(model, 0.1)
    model.gradient_checkpointing_enable()
    return model


def graph(seed: int) -> TextAttributedData:
    data = text_graph(5, seed)
    first, stop = data.token_ptr[int(data.target)], data.token_ptr[int(data.target) + 1]
    data.labels = torch.full_like(data.input_ids, -100)
    data.labels[first + 2 : stop] = data.input_ids[first + 2 : stop]
    return data


def gradients(model: GTLM) -> dict[str, Tensor]:
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in grads.items()}


def rank_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model, mesh = make_model(), init_device_mesh("cpu", (2,))
    for layer in model.base_model.get_base_model().model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    model(graph(rank)).loss.backward()
    torch.save(gradients(model), f"{folder}/{rank}.pt")
    leave_group()


def test_sharded_gradients_equal_those_of_one_process(tmp_path: Path) -> None:
    mp.start_processes(rank_of_two, (str(tmp_path),), nprocs=2, start_method="spawn")
    model = make_model()
    (0.5 * (model(graph(0)).loss + model(graph(1)).loss)).backward()
    expected = gradients(model)
    assert any(name.startswith("graph_bias") for name in expected)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected, atol=1e-6, rtol=1e-4)

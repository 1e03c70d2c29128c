"""The example trains the same in one process and in two, replicated or sharded, and goes on with another number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from examples.train_distributed import main
from pyg_textgraph.nn import GTLM
from pyg_textgraph.nn.models.gtlm.model import GTLMOutput
from pyg_textgraph.train import gather_state, joint_loss, mean_over_processes, restore_state
from pyg_textgraph.train.checkpoint import load_checkpoint
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm, text_graph
from tests.tiny import tiny_tokenizer

ROOT = Path(__file__).parents[2]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
              "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model, and four steps of one process in two epochs."""
    folder = tmp_path_factory.mktemp("distributed")
    tiny("llama", vocab_size=400, num_hidden_layers=2, max_position_embeddings=256).save_pretrained(folder / "base")
    tiny_tokenizer().save_pretrained(folder / "base")
    main(options(folder, "one"))
    return folder


def options(folder: Path, name: str, *more: str) -> list[str]:
    sizes = {"nodes": 10, "batch-size": 6, "epochs": 2, "neighbors": 3, "max-tokens": 12, "rank": 2, "dropout": 0}
    rates = {"lr": 1e-2, "bias-lr": 5e-2, "base": folder / "base", "folder": folder / name}
    return [*(f"--{key}={value}" for key, value in (sizes | rates).items()), *more]


def launch(launcher: list[str], arguments: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *launcher, str(ROOT / "examples" / "train_distributed.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def losses(folder: Path) -> list[float]:
    return load_checkpoint(folder / "last")[1]["losses"]


def trained(folder: Path) -> dict[str, Tensor]:
    model = GTLM.from_pretrained(folder / "model", trainable=True)
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


# Adam turns the rounding of a tiny gradient into a step of its rate, 0.05 here
CLOSE = {"atol": 5e-4, "rtol": 1e-3}


@pytest.mark.timeout(900)  # seconds on a machine of one's own
def test_two_processes_then_one(folder: Path) -> None:
    launch(TORCHRUN, options(folder, "two", "--stop-after=3"))
    assert_close(losses(folder / "two"), losses(folder / "one")[:3], atol=0, rtol=1e-5)
    main(options(folder, "two"))
    assert_close(losses(folder / "two"), losses(folder / "one"), atol=0, rtol=1e-5)
    assert_close(trained(folder / "two"), trained(folder / "one"), **CLOSE)
    assert losses(folder / "one")[3] < losses(folder / "one")[0]


@pytest.mark.timeout(900)
def test_one_process_then_two_sharded(folder: Path) -> None:
    main(options(folder, "sharded", "--stop-after=1"))
    launch(ACCELERATE, options(folder, "sharded", "--fsdp"))
    assert len(losses(folder / "sharded")) == 4
    assert_close(losses(folder / "sharded"), losses(folder / "one"), atol=0, rtol=1e-5)
    assert_close(trained(folder / "sharded"), trained(folder / "one"), **CLOSE)


def test_one_process_is_a_group_of_one() -> None:
    out = GTLMOutput(loss=torch.tensor(2.0), labels=torch.tensor([1, 2]))
    assert mean_over_processes(joint_loss(out)) == 2.0
    with pytest.raises(ValueError, match="joint_loss: the output has no loss"):
        joint_loss(GTLMOutput())


def test_a_state_of_another_model_is_refused() -> None:
    models = [gtlm(tiny("llama"), **kwargs) for kwargs in ({}, {"biases": ("spd",)})]
    first, second = (torch.optim.AdamW(model.param_groups(0.1, 0.1)) for model in models)
    with pytest.raises(ValueError, match=r"restore_state: .* first 'graph_bias"):
        restore_state(models[1], second, *gather_state(models[0], first))


def test_a_state_with_holes_is_not_saved(tmp_path: Path) -> None:
    model = gtlm(tiny("llama"))
    state = {name: value for name, value in model.state_dict().items() if "spd" not in name}
    with pytest.raises(ValueError, match="GTLM: 'state_dict' has no 'graph_bias"):
        model.save_pretrained(tmp_path / "run", state_dict=state)
    assert not (tmp_path / "run").exists()
    model(text_graph(3, 0))


def test_buffers_are_put_back_too() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))

    before, after = model(), model()
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (before, after)]
    before(torch.randn(8, 3)).sum().backward()
    optimizers[0].step()
    restore_state(after, optimizers[1], *gather_state(before, optimizers[0]))
    assert all(
        torch.equal(a, b) for a, b in zip(before.state_dict().values(), after.state_dict().values(), strict=True)
    )

"""Cut and broken files are named; a killed run goes on from its last step; no pickle is run."""

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pyg_textgraph.data import TokenStore
from pyg_textgraph.datasets import TextGraphFolder
from pyg_textgraph.nn import GTLM
from pyg_textgraph.train import TrainConfig
from pyg_textgraph.train.checkpoint import load_checkpoint, save_checkpoint
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm
from tests.train.test_trainer import curve, trainer


@pytest.mark.parametrize("file", ["ids.npy", "ptr.npy", "store.json"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_cut_token_store_is_named(tmp_path: Path, file: str, kept: float) -> None:
    TokenStore(torch.arange(500), torch.full((100,), 5)).save(tmp_path)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ValueError, match=rf"TokenStore: .*{file} is damaged"):
        TokenStore.load(tmp_path)


def test_a_loaded_store_can_be_saved_where_it_lies(tmp_path: Path) -> None:
    TokenStore(torch.arange(50_000), torch.full((5,), 10_000)).save(tmp_path)
    store = TokenStore.load(tmp_path)
    store.save(tmp_path)
    assert store[4].tolist() == TokenStore.load(tmp_path)[4].tolist() == list(range(40_000, 50_000))


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(os.environ["PAYLOAD"]),)  # type: ignore[return-value]


def test_pickles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYLOAD", str(tmp_path / "ran"))
    save_checkpoint(tmp_path / "last", {"a": torch.ones(2)}, {"step": 1})
    torch.save({"step": Payload()}, tmp_path / "last" / "state.pt")
    with pytest.raises(ValueError, match=r"state.pt is damaged or not a checkpoint"):
        load_checkpoint(tmp_path / "last")
    TokenStore(torch.arange(5), torch.tensor([5])).save(tmp_path / "store")
    (tmp_path / "store" / "ids.npy").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match=r"ids.npy is damaged"):
        TokenStore.load(tmp_path / "store")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["state.pt", "parameters.safetensors"])
def test_a_cut_checkpoint_is_named(tmp_path: Path, file: str) -> None:
    save_checkpoint(tmp_path / "last", {"a": torch.ones(2)}, {"step": 1})
    whole = (tmp_path / "last" / file).read_bytes()
    (tmp_path / "last" / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{file} is damaged"):
        load_checkpoint(tmp_path / "last")


def test_a_broken_gtlm_is_named(tmp_path: Path) -> None:
    model = gtlm(tiny("llama"))
    model.base_model.config._name_or_path = model.base_model.name_or_path = ""
    model.save_pretrained(tmp_path)
    settings, bias = (tmp_path / name for name in ("gtlm.json", "graph_bias.safetensors"))
    whole, tensors = settings.read_text(), load_file(bias)
    for text in (whole[:40], "{}", json.dumps(json.loads(whole) | {"gtlm": {"no such": 1}})):
        settings.write_text(text)
        with pytest.raises(ValueError, match=r"GTLM: .*gtlm.json is damaged"):
            GTLM.from_pretrained(tmp_path)
    settings.write_text(whole)
    name = next(iter(tensors))
    save_file(tensors | {name: torch.zeros(1)}, bias)
    with pytest.raises(ValueError, match=r"graph_bias.safetensors holds .* of shape \(1,\), expected"):
        GTLM.from_pretrained(tmp_path)
    bias.write_bytes(bias.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"graph_bias.safetensors is damaged"):
        GTLM.from_pretrained(tmp_path)


def test_broken_graph_folders_are_named(tmp_path: Path) -> None:
    nodes, edges = b'{"id": 0, "text": "a"}\n', b"0,0\n"
    (tmp_path / "edges.csv").write_bytes(edges)
    (tmp_path / "nodes.jsonl").write_bytes(nodes.replace(b"a", b"\xff"))
    with pytest.raises(ValueError, match=r"nodes.jsonl is damaged"):
        TextGraphFolder(tmp_path)
    (tmp_path / "nodes.jsonl.gz").write_bytes(gzip.compress(nodes)[:-9])
    with pytest.raises(ValueError, match=r"nodes.jsonl is damaged"):
        TextGraphFolder(tmp_path)
    (tmp_path / "nodes.jsonl.gz").write_bytes(gzip.compress(nodes.replace(b"}", b', "label": 0}')))
    (tmp_path / "classes.json").write_text('["a"')
    with pytest.raises(ValueError, match=r"classes.json is damaged"):
        TextGraphFolder(tmp_path)


LONG = TrainConfig(epochs=60, batch_size=2, save_every=1, seed=3)
RUN = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.hard_input.test_files import LONG
from tests.train.test_trainer import trainer
run = trainer(Path(sys.argv[1]), config=LONG)
update = run._update
def told(batches):
    row = update(batches)
    print(run.step, flush=True)
    return row
run._update = told
run.run(resume=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.005])
def test_a_killed_run_loses_its_current_step_only(tmp_path: Path, delay: float) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 7:
                break
        time.sleep(delay)  # somewhere in the save of this step or in one of the next
        process.send_signal(signal.SIGKILL)
        done = [7, *(int(line) for line in process.stdout if line.strip())][-1]
    assert process.returncode == -signal.SIGKILL
    parameters, state = load_checkpoint(tmp_path / "run" / "last")
    assert done - 1 <= state["step"] <= done
    assert len(state["history"]) == state["step"]
    assert all(p.isfinite().all() for p in parameters.values())
    whole, resumed = (trainer(tmp_path / name, config=LONG) for name in ("whole", "run"))
    assert curve(resumed.run(resume=True)) == curve(whole.run())

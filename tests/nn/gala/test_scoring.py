from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.nn.gala import GaLA, centered, named_option, option_ids, option_scores
from tests.nn.families import tiny
from tests.nn.gala.prompts import PATH, STAR, prompt_of

OPTIONS = [torch.tensor([7, 2]), torch.tensor([9, 11, 12, 2]), torch.tensor([5, 2])]


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral"])
def test_scores_are_log_probabilities_of_whole_sequences(family: str) -> None:
    model = tiny(family)
    prompts = [prompt_of(STAR, 4), prompt_of(PATH, 5, seed=1)]
    gala = GaLA(model, 2.0)
    actual = option_scores(gala, prompts, OPTIONS)
    for prompt, row in zip(prompts, actual, strict=True):
        for option, score in zip(OPTIONS, row, strict=True):
            with torch.no_grad(), gala(prompt):
                logits = model(torch.cat([prompt.input_ids, option])[None], use_cache=False).logits[0]
            log_p = logits[len(prompt) - 1 : -1].log_softmax(-1).gather(-1, option[:, None])
            assert float(score) == pytest.approx(float(log_p.sum()), abs=1e-3)
    assert not torch.allclose(actual, option_scores(model, prompts, OPTIONS), atol=1e-3)


def test_options_of_one_token() -> None:
    prompts, model = [prompt_of(STAR, 4)], tiny("llama")
    with torch.no_grad():
        expected = model(prompts[0].input_ids[None]).logits[0, -1].log_softmax(-1)[[7, 9]]
    torch.testing.assert_close(option_scores(model, prompts, [torch.tensor([7]), torch.tensor([9])])[0], expected)


def test_centering_takes_away_what_is_said_to_any_prompt() -> None:
    scores = torch.tensor([[-1.0, -5.0], [-2.0, -4.0]])
    assert centered(scores).tolist() == [[0.5, -0.5], [-0.5, 0.5]]
    assert centered(scores, torch.tensor([[-1.0, -4.0]])).tolist() == [[0.0, -1.0], [-1.0, 0.0]]


def test_option_ids_end(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = option_ids(tokenizer, ["motion", "weather"], lead=" ")
    assert [tokenizer.decode(row) for row in ids] == [" motion<eos>", " weather<eos>"]
    with pytest.raises(ValueError, match="empty"):
        option_ids(tokenizer, ["motion", ""])


def test_the_option_named_last_counts() -> None:
    options = ["Learning", "Rule Learning", "Theory"]
    assert named_option("not theory but rule learning.", options) == 1
    assert named_option("Rule Learning? No: Theory", options) == 2
    assert named_option("none", options) is None
    assert named_option("Yes, as far as I know", ["yes", "no"]) == 0
    assert named_option("C++, not C", ["c", "c++"]) == 0

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pyg_textgraph.nn.gala import (
    GaLA,
    HeadStrengths,
    attention_entropy,
    entropy_strengths,
    gradient_strengths,
    head_gradient,
    tune_strength,
)
from tests.nn.families import tiny
from tests.nn.gala.prompts import PATH, STAR, prompt_of

PROMPTS = [prompt_of(STAR, 4), prompt_of(PATH, 5, seed=1)]
ANSWERS = [torch.tensor([7, 2]), torch.tensor([9, 11, 2])]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny("llama", num_hidden_layers=4)


def test_formulas_by_hand() -> None:
    entropy = torch.tensor([[1.0, 4.0, 2.0], [0.0, 0.0, 0.0]])
    expected = torch.tensor([[0.5, 1.0, math.sqrt(0.5)], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(HeadStrengths.from_entropy(entropy).values, expected)
    gradient = torch.tensor([[-2.0, 1.0, -0.5], [3.0, 0.0, 1.0]])  # no head of the second layer helps
    expected = torch.tensor([[1.0, 0.0, 0.25], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(HeadStrengths.from_gradient(gradient).values, expected)


def test_strengths_are_multiplied_in_the_chosen_layers_only(model: PreTrainedModel) -> None:
    values = torch.rand(4, 4)
    gala = GaLA(model, 3.0, HeadStrengths(values, "by hand"), layers=[0, 2])
    assert torch.equal(gala.strengths, torch.stack([3 * values[0], 0 * values[1], 3 * values[2], 0 * values[3]]))


def test_random_choice_takes_the_same_share_of_every_layer() -> None:
    chosen = HeadStrengths.random(5, 8, share=0.25, seed=1).values
    assert torch.equal(chosen.sum(-1), torch.full((5,), 2.0))
    assert not torch.equal(chosen, HeadStrengths.random(5, 8, share=0.25, seed=2).values)


def test_saving(tmp_path: Path) -> None:
    before = HeadStrengths(torch.rand(3, 4), "entropy")
    before.save(tmp_path / "heads.json")
    after = HeadStrengths.load(tmp_path / "heads.json")
    assert torch.equal(after.values, before.values)
    assert after.method == "entropy"


@pytest.mark.parametrize("values", [torch.tensor([[-1.0]]), torch.tensor([[torch.nan]]), torch.ones(3)])
def test_bad_strengths_are_refused(values: Tensor) -> None:
    with pytest.raises(ValueError, match="not negative"):
        HeadStrengths(values, "by hand")


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral", "qwen3"])
def test_entropy_is_that_of_eager_attention(family: str) -> None:
    model = tiny(family)
    actual = attention_entropy(model, PROMPTS)
    model.set_attn_implementation("eager")
    rows = [
        torch.stack(model(prompt.input_ids[None], output_attentions=True).attentions)[:, 0]  # [L, H, T, T]
        for prompt in PROMPTS
    ]
    expected = torch.cat([torch.special.entr(row).sum(-1) for row in rows], -1).mean(-1)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3)
    assert float(entropy_strengths(model, PROMPTS).values.max()) == 1


def test_gradient_equals_finite_differences(model: PreTrainedModel) -> None:
    gala = GaLA(model)

    def loss(scale: Tensor) -> float:
        total = 0.0
        for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
            with torch.no_grad(), gala.biased([prompt], scale):
                logits = model(torch.cat([prompt.input_ids, answer[:-1]])[None]).logits[0, -answer.numel() :]
            total -= float(logits.double().log_softmax(-1).gather(-1, answer[:, None]).sum())
        return total / len(PROMPTS)

    gradient = head_gradient(gala, PROMPTS, ANSWERS)
    assert gradient[3].eq(0).all()
    assert all(parameter.grad is None for parameter in model.parameters())
    for layer, head in ((0, 1), (2, 3)):
        step = torch.zeros(4, 4)
        step[layer, head] = 1e-2
        scale = torch.zeros(4, 4).index_fill(0, torch.tensor([0, 1, 2]), 1.0)
        difference = (loss(scale + step) - loss(scale - step)) / 2e-2
        assert float(gradient[layer, head]) == pytest.approx(difference, rel=0.02, abs=1e-4)
    values = gradient_strengths(gala, PROMPTS, ANSWERS).values
    assert torch.equal(values > 0, gradient < 0)


def test_tuning_keeps_the_best_and_smallest(model: PreTrainedModel) -> None:
    gala = GaLA(model)
    found = tune_strength(gala, lambda gala: min(gala.strength, 2.0), strengths=(4.0, 1.0, 2.0))
    assert found == {1.0: 1.0, 2.0: 2.0, 4.0: 2.0}
    assert gala.strength == 2.0

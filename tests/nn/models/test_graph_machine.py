from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, DynamicCache, Qwen3Config, Qwen3ForCausalLM

from pyg_textgraph.nn.models.graph_machine import (
    PRESETS,
    GraphMachineConfig,
    GraphMachineLM,
    key_access,
    training_compute,
)
from pyg_textgraph.nn.models.graph_machine.dense import strongest_keys
from pyg_textgraph.nn.models.graph_machine.model import CACHE_NAME

PUBLISHED = {  # parameters, EFLOP in all / of attention and referral
    "qwen3": (596_049_920, "78.4", "38.8"),
    "theia-k24": (601_210_880, "62.3", "22.7"),
    "theia-k32-r2": (711_024_640, "72.7", "33.0"),
    "theia-k24-r3": (699_613_184, "71.6", "32.0"),
    "theia-k24-r4": (732_545_024, "74.7", "35.1"),
    "theia-k16-r4-s": (686_170_112, "73.1", "33.5"),
    "theia-k16-r6": (699_670_528, "71.6", "32.0"),
    "hyperion-k32-r1": (656_629_760, "67.5", "27.9"),
    "hyperion-k24-r3": (699_613_184, "71.6", "32.0"),
    "hyperion-k16-r3": (649_535_488, "66.9", "27.3"),
    "hyperion-k16-r3-s": (664_477_696, "71.1", "31.4"),
    "hyperion-k16-r4": (666_247_168, "68.5", "28.8"),
}
VARIANTS = {
    "everything": {},
    "theia": {"budgets": [2, 4, 3, 2]},
    "more edges than heads": {"num_edges": 8, "input_refresh": 8},
    "no referral": {"num_referrals": 0, "dense_refresh": 0},
    "no realignment": {"realign": False, "budgets": [3, 2, 4, 2]},
    "no refresh": {"input_refresh": 0, "dense_refresh": 0},
    "exponential": {"temperature_kind": "exponential"},
    "dense first": {"num_sparse_layers": 1},
    "dense": {"num_sparse_layers": 0},
}


def config(**options: object) -> GraphMachineConfig:
    small = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 4,
        "num_sparse_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_edges": 4,
        "num_referrals": 2,
        "budgets": [4, 4, 4, 4],
        "input_refresh": 3,
        "dense_refresh": 3,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    return GraphMachineConfig(**{**small, **options})


def model(**options: object) -> GraphMachineLM:
    torch.manual_seed(0)
    return GraphMachineLM(config(**options)).eval()


def text(batch: int = 2, n: int = 18) -> Tensor:
    torch.manual_seed(1)
    ids = torch.randint(2, 40, (batch, n))
    ids[:, 0] = 0  # texts start with a padding token
    return ids


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def variant(request: pytest.FixtureRequest) -> GraphMachineLM:
    return model(**request.param)


@pytest.mark.parametrize("name", PRESETS)
def test_published_parameters_and_compute(name: str) -> None:
    settings = GraphMachineConfig.preset(name)
    with torch.device("meta"):
        machine = GraphMachineLM(settings)
    total, attention = (f"{flop / 1e18:.1f}" for flop in training_compute(settings, 30_000 * 128 * 4096, 4096))
    assert (sum(p.numel() for p in machine.parameters()), total, attention) == PUBLISHED[name]


def test_published_key_access() -> None:
    access = {name: key_access(GraphMachineConfig.preset(name), 4096) for name in ("theia-k24", "hyperion-k16-r3")}
    assert [f"{100 * share:.3f}" for share in access.values()] == ["0.098", "0.195"]


def test_layers_are_interleaved_evenly() -> None:
    kinds = GraphMachineConfig.preset("theia-k24").sparse_layers
    assert kinds == [True, True, False, True] * 7
    assert config(num_sparse_layers=4).sparse_layers == [True] * 4
    assert config(num_sparse_layers=1).sparse_layers == [False, True, False, False]


def test_which_referral_is_refreshed() -> None:
    settings = GraphMachineConfig.preset("hyperion-k16-r3-s")
    assert settings.refresh_counts(0) == []
    assert settings.refresh_counts(1) == [(0, 0), (8, 0), (8, 0)]
    assert settings.refresh_counts(2) == []  # dense
    assert settings.refresh_counts(3) == [(8, 8)] * 3


def test_without_sparse_layers_it_is_qwen3() -> None:
    ours = model(num_sparse_layers=0, dense_refresh=0)
    theirs = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        )
    ).eval()
    ours.load_state_dict(theirs.state_dict())
    ids = text()
    assert_close(ours(ids).logits, theirs(ids).logits)


def test_changing_a_token_changes_nothing_before_it(variant: GraphMachineLM) -> None:
    ids = text()
    other = ids.clone()
    other[:, 11] = (other[:, 11] + 5) % 38 + 2
    before, after = variant(ids).logits, variant(other).logits
    assert_close(before[:, :11], after[:, :11])
    assert not torch.allclose(before[:, 11:], after[:, 11:])


def test_step_by_step_equals_the_full_pass(variant: GraphMachineLM) -> None:
    ids = text()
    full = variant(ids).logits
    state, logits = None, []
    for begin, end in ((0, 6), (6, 7), (7, 8), (8, 13), (13, 18)):
        out = variant(ids[:, begin:end], use_cache=True, **{CACHE_NAME: state})
        state = out[CACHE_NAME]
        logits.append(out.logits)
    assert_close(torch.cat(logits, 1), full, atol=1e-4, rtol=1e-4)


def test_left_padding_changes_nothing(variant: GraphMachineLM) -> None:
    ids = text()
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :3] = 0
    assert_close(variant(padded, attention_mask=mask).logits[:, 3:], variant(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["everything", "more edges than heads", "dense"])
def test_generate(name: str) -> None:
    machine, ids = model(**VARIANTS[name]), text(n=9)
    options = {"max_new_tokens": 4, "do_sample": False}
    mask = torch.ones_like(ids)
    cached = machine.generate(ids, attention_mask=mask, **options)
    assert_close(cached, machine.generate(ids, attention_mask=mask, use_cache=False, **options))
    padded = torch.cat([torch.zeros(2, 2, dtype=torch.long), ids], 1)
    longer = torch.cat([torch.zeros(2, 2, dtype=torch.long), mask], 1)
    assert_close(machine.generate(padded, attention_mask=longer, **options)[:, 2:], cached)
    beams = machine.generate(ids, attention_mask=mask, num_beams=3, **options)
    assert_close(beams, machine.generate(ids, attention_mask=mask, num_beams=3, use_cache=False, **options))


def test_loss_gradients_and_checkpointing(variant: GraphMachineLM) -> None:
    ids = text()
    variant.train()
    loss = variant(ids, labels=ids).loss
    expected = torch.autograd.grad(loss, [*variant.parameters()], allow_unused=True)
    logits = variant(ids).logits
    assert_close(loss, torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    variant.gradient_checkpointing_enable()
    again = torch.autograd.grad(variant(ids, labels=ids).loss, [*variant.parameters()], allow_unused=True)
    assert_close(again, expected)
    missing = [name for (name, _), grad in zip(variant.named_parameters(), expected, strict=True) if grad is None]
    assert not missing


def test_recomputing_needs_no_cache_and_loses_no_gradient() -> None:
    model = GraphMachineLM(config()).train()
    model.gradient_checkpointing_enable()
    out = model(text(), labels=text(), use_cache=True)
    assert out[CACHE_NAME] is None if CACHE_NAME in out else True
    out.loss.backward()
    with pytest.raises(ValueError, match="got a 'cache' while activations are recomputed"):
        model(text(), cache=DynamicCache())
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="'use_reentrant' is True, expected False"):
        model(text(), labels=text())


def test_generation_reads_the_padding_token_that_texts_start_with() -> None:
    model = GraphMachineLM(config(pad_token_id=0)).eval()
    ids = text()
    ids[:, 0] = 0
    out = model.generate(ids, max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True)
    assert_close(out.logits[0], model(ids).logits[:, -1], rtol=1e-4, atol=1e-5)


def test_save_and_load(tmp_path: Path, variant: GraphMachineLM) -> None:
    variant.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, GraphMachineLM)
    assert loaded.config.budgets == variant.config.budgets
    assert_close(loaded(text()).logits, variant(text()).logits, rtol=0, atol=0)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_bfloat16_runs_and_stays_close() -> None:
    machine, ids = model(initializer_range=0.05), text()
    expected = machine(ids).logits
    with torch.autocast("cpu", torch.bfloat16):
        mixed = machine(ids).logits
    half = machine.bfloat16()(ids).logits
    assert half.dtype == torch.bfloat16
    for logits in (mixed, half):
        assert (logits.float() - expected).abs().mean() < 0.05 * expected.abs().mean()


def test_edges_are_returned_on_request() -> None:
    machine, ids = model(), text()
    edges = machine.model(ids, output_edges=True).edges
    assert len(edges) == 3
    for state in edges:
        state.validate()
        assert (state.index <= torch.arange(18).view(18, 1, 1)).all()
    assert machine.model(ids).edges is None
    of_lm = machine(ids, output_edges=True).edges
    assert all(torch.equal(a.index, b.index) for a, b in zip(of_lm, edges, strict=True))


def test_outputs_as_transformers_asks_for_them() -> None:
    machine, ids = model(), text()
    out = machine(ids, labels=ids)
    loss, logits, *_ = machine(ids, labels=ids, return_dict=False)
    assert torch.equal(loss, out.loss)
    assert torch.equal(logits, out.logits)
    for asked in ("output_hidden_states", "output_attentions"):
        with pytest.raises(ValueError, match=f"'{asked}' is True, expected False"):
            machine(ids, **{asked: True})


@pytest.mark.parametrize("block", [1, 10_000])
def test_strongest_keys_are_the_top_causal_scores(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("pyg_textgraph.nn.models.graph_machine.dense.BLOCK", block)
    torch.manual_seed(0)
    q, k = torch.randn(2, 6, 3, 4), torch.randn(2, 6, 3, 4)
    floor = torch.tensor([0, 2])
    edges = strongest_keys(q, k, 3, floor)
    place = torch.arange(6)
    hidden = (place > place.view(6, 1)) | (place < floor.view(2, 1, 1, 1))
    score = torch.einsum("bnrd,bmrd->brnm", q, k).masked_fill(hidden, -torch.inf) / 2
    kept = score >= score.topk(3, -1).values[..., -1:]
    expected = score.masked_fill(~kept, -torch.inf).softmax(-1).nan_to_num(0)
    assert_close(edges.to_dense(), expected)
    late = strongest_keys(q[:, 4:], k, 3, floor)
    assert_close(late.to_dense(6), expected[:, :, 4:])


def test_errors() -> None:
    with pytest.raises(ValueError, match="no preset 'theia-k1'"):
        GraphMachineConfig.preset("theia-k1")
    with pytest.raises(ValueError, match="s1 = s4"):
        config(budgets=[2, 4, 4, 4])
    with pytest.raises(ValueError, match="'input_refresh' is 5"):
        config(input_refresh=5)
    with pytest.raises(ValueError, match="either 'input_ids' or"):
        model().model()
    with pytest.raises(ValueError, match="'cache' is a StaticCache"):
        model().generate(text(), max_new_tokens=2, cache_implementation="static")

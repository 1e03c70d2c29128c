"""The properties that make a GTLM what it is, on every family."""

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from torch_geometric.data import Batch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from pyg_textgraph.data import append_to_target
from pyg_textgraph.nn import GTLM, GTLMConfig
from pyg_textgraph.pretrained import SMOLLM2, fetch
from tests.nn.families import CONFIGS, tiny
from tests.nn.gtlm_graphs import FEATURES, gtlm, permuted, single_node, text_graph

FAMILIES = sorted(CONFIGS)


@pytest.fixture(scope="module")
def smollm2() -> GTLM:
    name, _ = fetch(SMOLLM2)
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    return gtlm(base, std=0.2)


@torch.no_grad()
def order_error(model: GTLM, vocabulary: int = 101) -> float:
    """Property 1: the largest change of next-token logits when nodes come in another order."""
    worst = 0.0
    for seed, size in ((0, 6), (1, 2), (2, 9)):
        data = text_graph(size, seed, vocabulary=vocabulary)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        worst = max(worst, float((model(data).logits - model(permuted(data, order)).logits).abs().max()))
    return worst


@torch.no_grad()
def single_node_error(model: GTLM, base: torch.nn.Module, vocabulary: int = 101) -> float:
    """Property 2: the largest difference from the language model's own logits on a graph of one target node."""
    data = single_node(24, vocabulary)
    expected = base(input_ids=data.input_ids[None]).logits[0]
    return float((model(data, logits="all").logits - expected).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_order_of_nodes_does_not_matter(family: str) -> None:
    assert order_error(gtlm(tiny(family))) <= 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_one_node_is_the_language_model(family: str) -> None:
    base = tiny(family)
    base.set_attn_implementation("eager")  # in transformers 5.17, SDPA leaves out Gemma 2's soft cap
    assert single_node_error(gtlm(base), base) <= 1e-4


@pytest.mark.model
def test_both_properties_on_a_real_model(smollm2: GTLM) -> None:
    base = copy.deepcopy(smollm2.base_model)
    base.set_attn_implementation("sdpa")
    order, single = order_error(smollm2, 49152), single_node_error(smollm2, base, 49152)
    print(f"\nSmolLM2-135M, random biases, float32: order of nodes {order:.1e}, single node {single:.1e} on logits")
    assert order <= 1e-4
    assert single <= 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_biases_and_neighbours_matter(family: str) -> None:
    base, data = tiny(family), text_graph(6, 0)
    with_bias, without = gtlm(base), GTLM(copy.deepcopy(base)).eval()
    assert float((with_bias(data).logits - without(data).logits).abs().max()) > 0.1
    changed = copy.copy(data)
    changed.input_ids = data.input_ids.clone()
    other = (int(data.target) + 1) % 6
    changed.input_ids[data.token_ptr[other] : data.token_ptr[other + 1]] = 7
    assert float((without(data).logits - without(changed).logits).abs().max()) > 1e-2


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3"])
@torch.no_grad()
def test_a_batch_equals_its_graphs(family: str) -> None:
    model = gtlm(tiny(family))
    graphs = [text_graph(6, 0), single_node(5), text_graph(3, 5), text_graph(9, 2)]
    alone = torch.cat([model(data).logits for data in graphs])
    torch.testing.assert_close(model(Batch.from_data_list(graphs)).logits, alone, atol=1e-4, rtol=0)


def test_untrained_biases_change_nothing() -> None:
    base, data = tiny("llama"), text_graph(6, 0)
    plain = GTLM(copy.deepcopy(base), biases=()).eval()
    with torch.no_grad():
        assert torch.equal(GTLM(copy.deepcopy(base)).eval()(data).logits, plain(data).logits)


@pytest.mark.parametrize("backend", ["reference", "blocked"])
def test_gradients_reach_biases_and_adapters_only(backend: str) -> None:
    model = GTLM(tiny("qwen3"), lora=LoraConfig(r=2), backend=backend)
    data = append_to_target(text_graph(5, 0), torch.tensor([7, 8, 2]), 2)
    model(data).loss.backward()
    for name, parameter in model.named_parameters():
        trained = "lora_" in name or name.startswith("graph_bias")
        assert (parameter.grad is not None) == trained, name
    # the last layers start at zero: only they move at first
    assert float(model.graph_bias.layers[0]["rrwp"].lin2.weight.grad.abs().max()) > 0
    assert float(model.graph_bias.layers[0]["spd"].table.grad.abs().max()) > 0
    assert "all-linear" not in str(model.base_model.peft_config["default"].target_modules)
    targets = {name.rsplit(".", 1)[-1] for name in model.base_model.targeted_module_names}
    assert targets == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_checkpointing_gives_the_same_gradients(family: str) -> None:
    data = append_to_target(text_graph(5, 0), torch.tensor([7, 8, 2]), 2)
    grads = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = GTLM(tiny(family), lora=LoraConfig(r=2), checkpoint_bias=checkpointing).train()
        for parameter in model.graph_bias.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(data).loss.backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    torch.testing.assert_close(grads[1], grads[0], atol=1e-5, rtol=1e-3)


def test_loss_is_the_mean_over_supervised_tokens() -> None:
    model = gtlm(tiny("llama"))
    answers = [torch.tensor([7, 8, 2]), torch.tensor([9, 2])]
    graphs = [append_to_target(text_graph(4, s), a, len(a)) for s, a in enumerate(answers)]
    out = model(Batch.from_data_list(graphs))
    assert out.labels.tolist() == [7, 8, 2, 9, 2]
    losses = [model(data).loss * len(answer) for data, answer in zip(graphs, answers, strict=True)]
    torch.testing.assert_close(out.loss, sum(losses) / 5)
    everything = model(Batch.from_data_list(graphs), logits="all")
    torch.testing.assert_close(everything.loss, out.loss)
    assert everything.logits.size(0) == sum(int(data.num_tokens.sum()) for data in graphs)


def test_half_precision_trains() -> None:
    model = GTLM(tiny("llama").to(torch.bfloat16), lora=LoraConfig(r=2))
    data = append_to_target(text_graph(5, 0), torch.tensor([7, 2]), 2)
    out = model(data)
    out.loss.backward()
    assert out.logits.dtype == torch.bfloat16
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.dtype == torch.float32, name
            assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize(("layers", "heads", "expected"), [(16, 32, 173_056), (30, 9, 251_340)])
def test_number_of_bias_parameters(layers: int, heads: int, expected: int) -> None:
    with torch.device("meta"):
        base = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=64 * heads, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=64,
                num_key_value_heads=heads, vocab_size=32,
            )
        )  # fmt: skip
        model = GTLM(base)
    assert sum(p.numel() for p in model.graph_bias.parameters()) == expected


def test_parameter_groups_hold_everything_that_trains_once() -> None:
    model = GTLM(tiny("llama"), lora=LoraConfig(r=2))
    adapters, biases = model.param_groups(lr=3e-4, bias_lr=2e-2)
    assert (adapters["lr"], adapters["weight_decay"]) == (3e-4, 0.1)
    assert (biases["lr"], biases["weight_decay"]) == (2e-2, 0.0)
    trained = [id(p) for p in model.parameters() if p.requires_grad]
    assert sorted(id(p) for group in (adapters, biases) for p in group["params"]) == sorted(trained)
    assert len(GTLM(tiny("llama"), biases=()).param_groups(1e-3, 1e-2)) == 0


def test_adapters_on_request_only() -> None:
    model = GTLM(tiny("llama"), lora=LoraConfig(r=2, target_modules=["q_proj"]))
    assert {name.rsplit(".", 1)[-1] for name in model.base_model.targeted_module_names} == {"q_proj"}
    with pytest.raises(ValueError, match="already has adapters"):
        GTLM(model.base_model, lora=LoraConfig(r=2))


class TestBadInput:
    @pytest.mark.parametrize(
        ("key", "bias", "way_out"),
        [("spd", "spd", "AddSPD"), ("rrwp", "rrwp", "AddRRWP"), ("magnetic_eigvals", "magnetic", "AddMagnetic")],
    )
    def test_missing_feature(self, key: str, bias: str, way_out: str) -> None:
        data = text_graph(4, 0)
        del data[key]
        with pytest.raises(ValueError, match=f"no '{key}', which bias '{bias}' needs; add {way_out}"):
            gtlm(tiny("llama"))(data)
        gtlm(tiny("llama"), biases=tuple({"spd", "rrwp", "magnetic"} - {bias}))(data)

    def test_node_longer_than_the_positions(self) -> None:
        data = FEATURES(append_to_target(single_node(60), torch.arange(3, 9)))
        with pytest.raises(ValueError, match="a node has 66 tokens, the language model reads 64 at most"):
            gtlm(tiny("llama"))(data)

    def test_tokens_out_of_range(self) -> None:
        data = text_graph(4, 0)
        data.input_ids[3] = 101
        with pytest.raises(ValueError, match="'input_ids' holds 101, the language model's vocabulary has 101"):
            gtlm(tiny("llama"))(data)

    def test_supervision_in_the_wrong_place(self) -> None:
        data = text_graph(4, 0)
        data.labels = torch.full_like(data.input_ids, -100)
        out = gtlm(tiny("llama"))(data)
        assert out.loss is None
        assert out.logits.shape == (1, 101)
        context = (int(data.target) + 1) % 4
        data.labels[data.token_ptr[context]] = 5
        with pytest.raises(ValueError, match=f"supervises node {context}, which is not the target"):
            gtlm(tiny("llama"))(data)
        data.labels.fill_(-100)
        data.labels[data.token_ptr[int(data.target)]] = 5
        with pytest.raises(ValueError, match="first token of a target"):
            gtlm(tiny("llama"))(data)

    def test_wrong_walk_length(self) -> None:
        with pytest.raises(ValueError, match="'rrwp' has 16 steps, expected 8"):
            gtlm(tiny("llama"), walk_length=8)(text_graph(4, 0))

    def test_configuration(self) -> None:
        with pytest.raises(ValueError, match=r"'biases' holds \['degree'\]"):
            GTLMConfig(biases=("degree",))
        with pytest.raises(ValueError, match="'k_hop' is -1"):
            GTLMConfig(k_hop=-1)
        with pytest.raises(ValueError, match="'walk_length' is 0"):
            GTLMConfig(walk_length=0)

    def test_the_bare_language_model_says_whose_it_is(self) -> None:
        model = gtlm(tiny("llama"))
        with pytest.raises(ValueError, match=r"call it through its GTLM.*set_attn_implementation"):
            model.base_model(input_ids=torch.zeros(1, 2, dtype=torch.long))


class TestArchitecturesThatCannotWork:
    def refused(self, model: torch.nn.Module, reason: str) -> None:
        with pytest.raises(ValueError, match=f"cannot read text graphs: .*{reason}"):
            GTLM(model)  # type: ignore[arg-type]

    def test_attention_sinks(self) -> None:
        config = GptOssConfig(
            vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, num_local_experts=2, num_experts_per_tok=1,
        )  # fmt: skip
        self.refused(GptOssForCausalLM(config), "sinks")

    def test_no_attention(self) -> None:
        self.refused(MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2)), "")

    def test_encoder_decoder(self) -> None:
        config = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        self.refused(T5ForConditionalGeneration(config), "encoder-decoder")

    def test_no_head(self) -> None:
        self.refused(AutoModel.from_config(tiny("llama").config), "no language-model head")

    def test_attention_dropout(self) -> None:
        self.refused(tiny("llama", attention_dropout=0.1), "attention_dropout is 0.1")

    def test_a_refused_model_keeps_its_attention(self) -> None:
        model = tiny("llama", attention_dropout=0.1)
        self.refused(model, "attention_dropout")
        assert model(input_ids=torch.zeros(1, 2, dtype=torch.long)).logits.shape == (1, 2, 101)


def test_is_loaded_in_evaluation_mode(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tiny("llama", vocab_size=400).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    model = GTLM.from_pretrained(tmp_path / "base", lora=LoraConfig(r=2, lora_dropout=0.5))
    model.save_pretrained(tmp_path / "run")
    for made in (model, GTLM.from_pretrained(tmp_path / "run")):
        assert not any(module.training for module in made.modules())


def test_what_cannot_be_made_leaves_the_language_model_as_it_was() -> None:
    model, ids = tiny("llama"), torch.tensor([[3, 4, 5]])
    expected = model(ids).logits
    nowhere = LoraConfig(target_modules=["nope"])
    for wrong in ({"new_tokens": {"<a>": "x"}}, {"bias_groups": 9}, {"lora": nowhere}):
        with pytest.raises(ValueError, match=r"new_tokens|bias_groups|nope"):
            GTLM(model, **wrong)
        assert torch.equal(model(ids).logits, expected)
        assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_whole_model_changes_its_type(dtype: torch.dtype) -> None:
    model, data = gtlm(tiny("llama")), text_graph(4, 0)
    expected = model(data).logits
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float64 else {"rtol": 0.1, "atol": 0.3}
    torch.testing.assert_close(model.to(dtype)(data).logits.float(), expected, **close)


def test_checkpointing_takes_what_hugging_face_takes() -> None:
    model = gtlm(tiny("llama"))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"preserve_rng_state": True})
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    with pytest.raises(ValueError, match="'use_reentrant' is True, expected False"):
        model.gradient_checkpointing_enable({"use_reentrant": True})


def test_a_graph_without_tokens_has_no_last_one() -> None:
    model, empty = gtlm(tiny("llama")), text_graph(3, 0)
    empty.input_ids, empty.num_tokens = empty.input_ids[:0], torch.zeros_like(empty.num_tokens)
    with pytest.raises(ValueError, match="graph 1 of the batch has no tokens"):
        model(Batch.from_data_list([text_graph(3, 1), empty]))

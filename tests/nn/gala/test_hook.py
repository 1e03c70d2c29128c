from __future__ import annotations

from threading import Thread

import networkx as nx
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from pyg_textgraph.nn.gala import GaLA, HeadStrengths, inverse_distance, pad_left
from pyg_textgraph.nn.gala.hook import biased_layers, causal_layout
from tests.nn.families import CONFIGS, tiny
from tests.nn.gala.prompts import PATH, STAR, prompt_of


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny("llama", num_hidden_layers=4)


def logits_of(model: PreTrainedModel, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, use_cache=False).logits


@pytest.mark.parametrize("seed", range(4))
def test_bias_is_the_inverse_of_networkx_distances(seed: int) -> None:
    graph = nx.gnp_random_graph(9, 0.18, seed=seed, directed=True)
    edge_index = torch.tensor([*graph.edges]).T.reshape(2, -1)
    distance = dict(nx.all_pairs_shortest_path_length(graph.to_undirected()))
    expected = torch.zeros(9, 9)
    for u, row in distance.items():
        for v, hops in row.items():
            expected[u, v] = 1 / hops if hops else 0
    assert torch.equal(inverse_distance(edge_index, 9), expected)


def test_unreachable_pairs_own_node_and_no_node_get_nothing() -> None:
    prompt = prompt_of(torch.tensor([[0], [1]]), 3)
    layout, keep = causal_layout([prompt], len(prompt))
    spread = layout.expand_pairs(inverse_distance(prompt.edge_index, 3)[None, None])[0]
    adjacent = (prompt.node[:, None] == 0) & (prompt.node == 1)
    assert keep is None
    assert torch.equal(spread, (adjacent | adjacent.T).float())


def test_attention_is_biased_by_hand(model: PreTrainedModel) -> None:
    """One biased layer against scores written out as a mask over all token pairs."""
    prompt = prompt_of(PATH, 5)
    model.set_attn_implementation("sdpa")
    gala = GaLA(model, 1.5, layers=[1])
    size = len(prompt)
    layout, _ = causal_layout([prompt], size)
    bias = 1.5 * layout.expand_pairs(inverse_distance(PATH, 5)[None, None])[0]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    attention = model.model.layers[1].self_attn

    def add(module: object, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, object]:
        return args, kwargs | {"attention_mask": bias.masked_fill(later, -torch.inf)[None, None]}

    handle = attention.register_forward_pre_hook(add, with_kwargs=True)
    expected = logits_of(model, prompt.input_ids[None])
    handle.remove()
    with gala(prompt):
        actual = logits_of(model, prompt.input_ids[None])
    assert not torch.allclose(actual, logits_of(model, prompt.input_ids[None]), atol=1e-2)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_batch_equals_one_by_one_in_every_family(family: str) -> None:
    model = tiny(family)
    gala = GaLA(model, 2.0, "random")
    prompts = [prompt_of(STAR, 4), prompt_of(PATH, 5, tokens=2, seed=1), prompt_of(STAR, 6, loose=3, seed=2)]
    ids, mask = pad_left(prompts, 0)
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    with gala(prompts), torch.no_grad():
        together = model(input_ids=ids, attention_mask=mask, position_ids=position, use_cache=False).logits[:, -1]
    for row, prompt in zip(together, prompts, strict=True):
        with gala(prompt):
            alone = logits_of(model, prompt.input_ids[None])[0]
        torch.testing.assert_close(row, alone[-1], atol=2e-4, rtol=1e-3)
        assert not torch.allclose(alone, logits_of(model, prompt.input_ids[None])[0], atol=1e-3)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_no_strength_and_a_left_context_are_bit_equal(model: PreTrainedModel, attention: str) -> None:
    model.set_attn_implementation(attention)
    prompt = prompt_of(PATH, 5)
    before = logits_of(model, prompt.input_ids[None])
    gala = GaLA(model, 0.0)
    with gala(prompt):
        assert torch.equal(logits_of(model, prompt.input_ids[None]), before)
    gala.strength = 3.0
    configs = [layer.self_attn.config for layer in model.model.layers]
    with gala(prompt):
        assert not torch.equal(logits_of(model, prompt.input_ids[None]), before)
    with pytest.raises(RuntimeError, match="stop"), gala(prompt):
        raise RuntimeError("stop")
    assert torch.equal(logits_of(model, prompt.input_ids[None]), before)
    assert all(
        layer.self_attn.config is config for layer, config in zip(model.model.layers, configs, strict=True)
    )  # nothing of ours is left


def test_other_threads_see_the_plain_model(model: PreTrainedModel) -> None:
    model.set_attn_implementation("sdpa")
    prompt = prompt_of(PATH, 5)
    before, seen = logits_of(model, prompt.input_ids[None]), []
    with GaLA(model, 3.0)(prompt):
        thread = Thread(target=lambda: seen.append(logits_of(model, prompt.input_ids[None])))
        thread.start()
        thread.join()
    assert torch.equal(seen[0], before)


def test_upper_half_and_layers_without_strong_heads_are_not_touched(model: PreTrainedModel) -> None:
    values = torch.ones(4, 4)
    values[1] = 0
    gala = GaLA(model, 1.0, HeadStrengths(values, "by hand"))
    with gala(prompt_of(PATH, 5)):
        taken = [type(layer.self_attn.config).__name__ == "_LayerConfig" for layer in model.model.layers]
    assert taken == [True, False, True, False]
    assert biased_layers("first_half", 5) == [0, 1, 2]
    assert biased_layers("first_half", 4) == [0, 1, 2]
    assert torch.equal(gala.strengths.ne(0).any(-1), torch.tensor(taken))


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_return_sequences": 2, "num_beams": 2}])
def test_generation_with_cache_equals_without(model: PreTrainedModel, options: dict[str, int]) -> None:
    gala = GaLA(model, 2.0)
    prompts = [prompt_of(STAR, 4), prompt_of(PATH, 5, seed=1)]
    ids, mask = pad_left(prompts, 0)
    out = []
    for use_cache in (True, False):
        with gala(prompts):
            out.append(
                model.generate(
                    ids, attention_mask=mask, max_new_tokens=6, use_cache=use_cache, do_sample=False, **options
                )
            )
    assert torch.equal(out[0], out[1])
    assert not torch.equal(
        out[0], model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, **options)
    )


def test_other_caches_and_adapters(model: PreTrainedModel) -> None:
    prompt = prompt_of(PATH, 5)
    ids = prompt.input_ids[None]
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "do_sample": False}
    with GaLA(model, 2.0)(prompt):
        expected = model.generate(ids, **options)
        assert torch.equal(model.generate(ids, cache_implementation="static", **options), expected)
    with pytest.raises(ValueError, match="the longest prompt has"), GaLA(model, 2.0)(prompt):
        model.generate(ids, prefill_chunk_size=8, **options)
    adapted = get_peft_model(tiny("llama", num_hidden_layers=4), LoraConfig(task_type="CAUSAL_LM"))
    with GaLA(adapted, 2.0)(prompt):
        assert torch.equal(adapted.generate(input_ids=ids, **options), expected)


@pytest.mark.parametrize("more", [3, 12, 15])
def test_what_follows_belongs_to_no_node_however_long_it_is(model: PreTrainedModel, more: int) -> None:
    """With a cache the follow-up is read alone, and may be as long as the prompt."""
    prompts = [prompt_of(STAR, 4), prompt_of(PATH, 5, seed=1)]
    ids, mask = pad_left(prompts, 0)
    following = torch.randint(5, 90, (2, more), generator=torch.Generator().manual_seed(0))
    whole, all_of_it = torch.cat([ids, following], 1), torch.cat([mask, torch.ones_like(following)], 1)
    position = (all_of_it.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad(), GaLA(model, 2.0)(prompts):
        expected = model(whole, attention_mask=all_of_it, position_ids=position, use_cache=False).logits
        first = model(ids, attention_mask=mask, position_ids=position[:, : ids.size(1)], use_cache=True)
        cache = {key: first[key] for key in ("cache", "past_key_values") if key in first}
        second = model(following, attention_mask=all_of_it, position_ids=position[:, ids.size(1) :], **cache)
    torch.testing.assert_close(second.logits, expected[:, ids.size(1) :], rtol=1e-4, atol=1e-4)


def test_a_prompt_in_pieces_is_refused(model: PreTrainedModel) -> None:
    prompt = prompt_of(PATH, 5)
    ids = prompt.input_ids[None]
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 2, "cache_implementation": "static"}
    with pytest.raises(ValueError, match="the longest prompt has"), GaLA(model, 2.0)(prompt):
        model.generate(ids, prefill_chunk_size=8, **options)


def test_generate_returns_texts(model: PreTrainedModel) -> None:
    class Words:
        pad_token_id = 0

        def batch_decode(self, rows: Tensor, skip_special_tokens: bool) -> list[str]:
            return [" ".join(map(str, row.tolist())) for row in rows]

    prompts = [prompt_of(STAR, 4), prompt_of(PATH, 5, seed=1)]
    gala = GaLA(model, 2.0, tokenizer=Words())  # type: ignore[arg-type]
    together = gala.generate(prompts, max_new_tokens=5, do_sample=False, eos_token_id=None)
    alone = [gala.generate(prompt, max_new_tokens=5, do_sample=False, eos_token_id=None)[0] for prompt in prompts]
    assert together == alone
    with pytest.raises(ValueError, match="tokenizer"):
        GaLA(model).generate(prompts)


def test_wrong_arguments_say_what_is_expected(model: PreTrainedModel) -> None:
    with pytest.raises(ValueError, match="'heads' is 'most'"):
        GaLA(model, heads="most")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layers 0 to 3"):
        GaLA(model, layers=[4])
    with pytest.raises(ValueError, match="shape"):
        GaLA(model, heads=HeadStrengths.all(2, 2))
    prompt = prompt_of(PATH, 5)
    with pytest.raises(ValueError, match="the longest prompt has"), GaLA(model)(prompt):
        logits_of(model, prompt.input_ids[None, :-1])
    with pytest.raises(ValueError, match="batch of 3 for 2 prompts"), GaLA(model)([prompt, prompt]):
        logits_of(model, prompt.input_ids.expand(3, -1))

"""Classification and generation: what they cut off, share and cache must not show."""

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import TaskPrompt, TextAttributedData, append_to_target, tokenize
from pyg_textgraph.nn import GTLM
from tests.nn.families import CONFIGS, tiny
from tests.nn.gtlm_graphs import FEATURES, gtlm, single_node, text_graph

NAMES = [torch.tensor([5, 6, 2]), torch.tensor([7, 2]), torch.tensor([5, 9, 11, 2]), torch.tensor([2])]


def graphs() -> list[TextAttributedData]:
    return [text_graph(6, 0), text_graph(3, 5), single_node(7), text_graph(9, 2)]


@torch.no_grad()
def one_by_one(model: GTLM, data: TextAttributedData, name: Tensor) -> Tensor:
    """The log-probability of a name by teacher forcing it at the end of the target."""
    return -model(append_to_target(data, name, len(name))).loss * len(name)


@pytest.mark.parametrize("k_hop", [None, 1])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_names_share_the_graph_but_not_each_other(family: str, k_hop: int | None) -> None:
    model = gtlm(tiny(family), k_hop=k_hop)
    batch = Batch.from_data_list(graphs())
    expected = torch.stack([torch.stack([one_by_one(model, data, name) for name in NAMES]) for data in graphs()])
    scores = model.classify(batch, NAMES)
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.classify(batch, NAMES, chunk=3), expected, atol=1e-4, rtol=1e-4)
    assert scores.shape == (4, len(NAMES))


def test_prior_is_subtracted() -> None:
    model, batch = gtlm(tiny("llama")), Batch.from_data_list(graphs())
    prior = torch.tensor([0.5, -1.0, 2.0, 0.0])
    torch.testing.assert_close(model.classify(batch, NAMES, prior=prior), model.classify(batch, NAMES) - prior)


@pytest.mark.parametrize("k_hop", [None, 1])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_cache_changes_no_token(family: str, k_hop: int | None) -> None:
    model, batch = gtlm(tiny(family), k_hop=k_hop), Batch.from_data_list(graphs())
    with_cache = model.generate(batch, 8, return_ids=True)
    without = model.generate(batch, 8, use_cache=False, return_ids=True)
    assert [x.tolist() for x in with_cache] == [x.tolist() for x in without]
    assert max(len(x) for x in with_cache) == 8  # longer than the families' window


def test_generation_follows_the_largest_logit() -> None:
    model, data = gtlm(tiny("llama")), text_graph(5, 3)
    [ids] = model.generate(data, 4, return_ids=True)
    for i, token in enumerate(ids):
        logits = model(append_to_target(data, ids[:i]) if i else data).logits
        assert int(logits.argmax()) == int(token)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_answers_in_the_data_are_not_looked_at(family: str) -> None:
    model = gtlm(tiny(family))
    bare = graphs()
    answers = [torch.tensor([7, 2]), torch.tensor([9, 10, 11, 2]), torch.tensor([3, 2]), torch.tensor([2])]
    answered = [append_to_target(data, answer, len(answer)) for data, answer in zip(bare, answers, strict=True)]
    first, second = Batch.from_data_list(bare), Batch.from_data_list(answered)
    assert torch.equal(model.classify(first, NAMES), model.classify(second, NAMES))
    for cache in (True, False):
        a, b = (model.generate(x, 4, use_cache=cache, return_ids=True) for x in (first, second))
        assert [x.tolist() for x in a] == [x.tolist() for x in b]


def test_generation_stops_at_the_end_token() -> None:
    model, batch = gtlm(tiny("llama")), Batch.from_data_list(graphs())
    rows = model.generate(batch, 6, return_ids=True)
    model.base_model.generation_config.eos_token_id = int(rows[0][2])
    stopped = model.generate(batch, 6, return_ids=True)
    assert stopped[0].tolist() == rows[0][:2].tolist()
    for short, long in zip(stopped, rows, strict=True):
        assert long[: len(short)].tolist() == short.tolist()


def test_sampling_follows_the_probabilities() -> None:
    model, data = gtlm(tiny("llama")), single_node(5)
    p = model(data).logits.softmax(-1)[0].detach()
    torch.manual_seed(0)
    batch = Batch.from_data_list([data] * 400)
    drawn = torch.cat(
        [x if len(x) else torch.tensor([2]) for x in model.generate(batch, 1, do_sample=True, return_ids=True)]
    )
    share = torch.bincount(drawn, minlength=101) / 400
    assert float((share - p).abs().max()) < 0.08
    cold = model.generate(batch, 1, do_sample=True, temperature=1e-4, return_ids=True)
    assert {int(x) for x in torch.cat(cold)} == {int(p.argmax())}


@pytest.mark.parametrize("use_cache", [True, False])
def test_own_decoding_step_by_step(use_cache: bool) -> None:
    model, batch = gtlm(tiny("llama")).train(), Batch.from_data_list(graphs())
    expected = model.generate(batch, 4, return_ids=True)
    steps = model.decode_steps(batch, use_cache=use_cache)
    logits, chosen = next(steps), []
    assert logits.shape == (4, 101)
    assert not logits.requires_grad
    for _ in range(4):
        chosen.append(logits.argmax(-1))
        logits = steps.send(chosen[-1])
    assert not model.training
    steps.close()
    assert model.training
    for row, ids in zip(torch.stack(chosen, 1), expected, strict=True):
        assert row[: len(ids)].tolist() == ids.tolist()


def test_texts_and_names(tokenizer: PreTrainedTokenizerFast) -> None:
    model = gtlm(tiny("llama", vocab_size=400), tokenizer=tokenizer)
    prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
    data = TextAttributedData(text=["run", "rain"], edge_index=torch.tensor([[0], [1]]), target=0)
    asked = FEATURES(prompt.append(tokenize(data, tokenizer), answer=1))
    by_name, by_ids = model.classify(asked, ["motion", "weather"]), model.classify(asked, prompt.answer_ids)
    assert torch.equal(by_name, by_ids)
    torch.testing.assert_close(by_name[0, 1], -model(asked).loss.detach() * len(prompt.answer_ids[1]))
    [text] = model.generate(asked, 5)
    [ids] = model.generate(asked, 5, return_ids=True)
    assert text == tokenizer.decode(ids)


def test_leaves_training_mode_as_it_was() -> None:
    model = gtlm(tiny("llama")).train()
    model.base_model.model.layers[0].eval()  # a part may be in another mode than the whole
    before = {name: module.training for name, module in model.named_modules()}
    model.classify(text_graph(3, 0), NAMES)
    model.generate(text_graph(3, 0), 2, return_ids=True)
    assert {name: module.training for name, module in model.named_modules()} == before


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_graph_that_has_ended_runs_out_of_nothing(use_cache: bool) -> None:
    """It is read with others that go on, and has no positions left."""
    model = gtlm(tiny("llama", max_position_embeddings=64))
    long, short = single_node(62), single_node(5, seed=1)
    first = int(model(long).logits.argmax())
    model.base_model.generation_config.eos_token_id = first
    alone = model.generate(short, 12, return_ids=True, use_cache=use_cache)[0]
    assert first not in alone.tolist()
    rows = model.generate(Batch.from_data_list([long, short]), 12, return_ids=True, use_cache=use_cache)
    assert [row.tolist() for row in rows] == [[], alone.tolist()]


def test_scores_are_scaled_before_half_precision_overflows() -> None:
    model = tiny("qwen2")
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.bias.fill_(110.0)
    half = gtlm(model.half())
    logits = []
    for use_cache in (True, False):
        steps = half.decode_steps(text_graph(3, 0), use_cache=use_cache)
        next(steps)
        logits.append(steps.send(torch.tensor([5])))
    assert all(x.isfinite().all() for x in logits)
    torch.testing.assert_close(*logits, rtol=0.02, atol=0.02)


def test_bad_input() -> None:
    model, data = gtlm(tiny("llama")), text_graph(4, 0)
    without = copy.copy(data)
    del without["target"]
    with pytest.raises(ValueError, match="every graph needs a 'target'"):
        model.generate(without, 4)
    with pytest.raises(ValueError, match="'max_new_tokens' is 0"):
        model.generate(data, 0)
    with pytest.raises(ValueError, match="'temperature' is 0"):
        model.generate(data, 1, do_sample=True, temperature=0)
    with pytest.raises(ValueError, match="'names' is empty"):
        model.classify(data, [])
    with pytest.raises(ValueError, match="texts need a tokenizer"):
        model.classify(data, ["motion"])
    with pytest.raises(ValueError, match="language model reads 64 at most"):
        model.generate(single_node(60), 10)

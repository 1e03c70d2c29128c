"""A GTLM that writes: always valid, reads what it was trained on, and learns."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch_geometric.data import Batch
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import (
    CONTROL_TOKENS,
    ActionTokens,
    AddEdge,
    AddNode,
    GraphGrammar,
    Stop,
    TextAttributedData,
)
from pyg_textgraph.data.prompts import drop_answer
from pyg_textgraph.datasets import ActionSteps
from pyg_textgraph.nn import GTLM, GraphWriter
from pyg_textgraph.train import TrainConfig, Trainer
from pyg_textgraph.transforms import AddSPD, HideNode, TokenizeAction
from tests.data.written_graphs import assert_valid, edges_of
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import FEATURES, randomize

FAMILY = GraphGrammar(relations=("CHILD", "SPOUSE"), symmetric=frozenset({"SPOUSE"}), max_text_tokens=4)
FEATURE_KEYS = ("spd", "rrwp", "magnetic_eigvals", "magnetic_eigvecs", "magnetic_num_eigvals")


def family() -> TextAttributedData:
    ends = [(0, 1), (1, 0), (0, 2), (1, 2), (2, 3)]
    return TextAttributedData(
        text=["Ada, female", "Bob, male", "Eve, female", "Dan, male"],
        edge_index=torch.tensor(ends).T.contiguous(),
        text_edges=["SPOUSE", "SPOUSE", "CHILD", "CHILD", "CHILD"],
    )


def name_of(text: str) -> str:
    return text.split(",")[0]


def make(
    tokenizer: PreTrainedTokenizerFast, grammar: GraphGrammar = FAMILY, std: float = 0.3, **kwargs: Any
) -> GraphWriter:
    base = tiny("llama", vocab_size=len(tokenizer), max_position_embeddings=512)
    model = GTLM(base, copy.deepcopy(tokenizer), LoraConfig(r=4), new_tokens=CONTROL_TOKENS, **kwargs).eval()
    if std:
        randomize(model, std)
    tokens = ActionTokens(model.tokenizer, grammar, name_of)
    features = AddSPD(8) if model.config.biases == ("spd",) else FEATURES
    return GraphWriter(model, TokenizeAction(tokens, "Complete the family.", features))


@torch.no_grad()
def forced_log_prob(writer: GraphWriter, example: TextAttributedData, state: TextAttributedData) -> float:
    """Of an example's action among what the grammar allows, by teacher forcing."""
    out = writer.model(example)
    parser, total = writer.prompt.actions.parser(state), 0.0
    for logits, token in zip(out.logits, out.labels.tolist(), strict=True):
        allowed = parser.allowed()
        total += float(logits[allowed].log_softmax(0)[(allowed == token).nonzero()[0, 0]])
        parser.push(token)
    return total


@pytest.mark.parametrize("k_hop", [None, 2])
def test_reads_at_every_step_what_it_was_trained_on(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, k_hop: int | None
) -> None:
    # free texts may be drawn in other tokens than the tokenizer's own, which training uses
    grammar = replace(FAMILY, node_texts=("Tom, male", "Dan, male", "Tess, female"))
    writer = make(tokenizer, grammar, k_hop=k_hop)
    read: list[TextAttributedData] = []
    decode_steps = writer.model.decode_steps

    def spy(batch: Batch, **kwargs: Any) -> Any:
        read.extend(batch.to_data_list())
        return decode_steps(batch, **kwargs)

    monkeypatch.setattr(writer.model, "decode_steps", spy)
    for seed in range(20):  # until chance writes a node and an edge
        torch.manual_seed(seed)
        read.clear()
        [written] = writer.write([family()], max_actions=4, do_sample=True, temperature=100.0)
        if {AddNode, AddEdge} <= {type(action) for action in written.actions}:
            break
    assert len(read) == len(written.actions) >= 2
    episode = family()
    episode.actions = [action for action in written.actions if not isinstance(action, Stop)]
    examples = ActionSteps([episode], grammar, writer.prompt)
    states = ActionSteps([episode], grammar)
    assert len(examples) == len(episode.actions) + 1
    for k, (example, seen) in enumerate(zip(examples, read, strict=False)):
        question = drop_answer(example)
        for key in ("input_ids", "num_tokens", "edge_index", "target", *FEATURE_KEYS):
            assert torch.equal(torch.as_tensor(question[key]).view(-1), torch.as_tensor(seen[key]).view(-1)), key
        if k < len(written.actions):
            expected = forced_log_prob(writer, example, states[k])
            assert written.log_probs[k] == pytest.approx(expected, abs=1e-3)
    sizes = [(x.num_nodes, x.spd.numel()) for x in read]
    assert len(set(sizes)) > 1  # features are those of the graph as it is then


def test_any_model_writes_valid_graphs(tokenizer: PreTrainedTokenizerFast) -> None:
    bare = TextAttributedData(text=[], edge_index=torch.empty(2, 0, dtype=torch.long))
    for grammar in (FAMILY, GraphGrammar(relations=("CHILD",), parallel=False, self_loops=True, max_text_tokens=2)):
        writer = make(tokenizer, grammar, std=2.0, biases=("spd",))
        graphs = [family(), bare, *(family() for _ in range(4))]
        torch.manual_seed(0)
        results = writer.write(graphs, max_actions=4, do_sample=True, temperature=50.0)
        for graph, written in zip(graphs, results, strict=True):
            assert_valid(graph, written.graph, grammar)
            assert written.finished == isinstance(written.actions[-1], Stop)
            assert written.finished or len(written.actions) == 4
            assert all(log_prob <= 0 for log_prob in written.log_probs)
            assert len(written.log_probs) == len(written.actions)
        assert len({tuple(written.actions) for written in results}) > 3
        assert edges_of(graphs[0]) == edges_of(family())


def test_a_model_without_adapters_writes_in_words(tokenizer: PreTrainedTokenizerFast) -> None:
    base = tiny("qwen3", vocab_size=len(tokenizer), max_position_embeddings=512)
    model = GTLM(base, tokenizer, biases=("spd",))
    tokens = ActionTokens(tokenizer, FAMILY, name_of, controls=("add node", "add edge", "done"))
    writer = GraphWriter(model, TokenizeAction(tokens, transform=AddSPD(8)))
    torch.manual_seed(0)
    for written in writer.write([family()] * 3, max_actions=2, do_sample=True, temperature=20.0):
        assert_valid(family(), written.graph, FAMILY)


def test_writes_many_graphs_as_it_writes_each(tokenizer: PreTrainedTokenizerFast) -> None:
    writer = make(tokenizer)
    other = FAMILY.apply(FAMILY.apply(family(), AddNode("Tom, male")), AddEdge(3, 4, "CHILD"))
    graphs = [family(), other, FAMILY.apply(family(), AddEdge(1, 3, "CHILD"))]
    together = writer.write(graphs, max_actions=2)
    for graph, written in zip(graphs, together, strict=True):
        [alone] = writer.write([graph], max_actions=2)
        assert alone.actions == written.actions
        assert alone.log_probs == pytest.approx(written.log_probs, abs=1e-4)


def test_draws_as_often_as_it_says(tokenizer: PreTrainedTokenizerFast) -> None:
    writer = make(tokenizer, GraphGrammar(relations=("CHILD",), add_nodes=False), std=0.1, biases=("spd",))
    graph = TextAttributedData(text=["Ada", "Bob"], edge_index=torch.empty(2, 0, dtype=torch.long))
    torch.manual_seed(0)
    drawn = writer.next_actions([graph] * 120, do_sample=True)
    chance = dict(drawn)
    assert set(chance) <= {Stop(), AddEdge(0, 1, "CHILD"), AddEdge(1, 0, "CHILD")}
    for action, log_prob in chance.items():
        share = sum(other == action for other, _ in drawn) / 120
        assert share == pytest.approx(float(torch.tensor(log_prob).exp()), abs=0.12)
    [likeliest] = writer.next_actions([graph])
    cold = writer.next_actions([graph] * 20, do_sample=True, temperature=1e-30)
    assert {action for action, _ in cold} == {likeliest[0]}


def test_learns_to_restore_a_node(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    hidden = HideNode(FAMILY, lambda data: torch.tensor([text.startswith("Dan") for text in data.text]))(family())
    grammar = replace(FAMILY, max_text_tokens=12)
    writer = make(tokenizer, grammar, std=0.0, biases=("spd",))
    steps = ActionSteps([hidden], grammar, writer.prompt)
    optimizer = torch.optim.AdamW(writer.model.param_groups(3e-2, 3e-2, 0.0))
    history = Trainer(writer.model, steps, optimizer, TrainConfig(epochs=40, batch_size=3), tmp_path).run()
    assert history[-1]["loss"] < 0.1 * history[0]["loss"]
    [written] = writer.write([hidden])
    assert written.actions == [AddNode("Dan, male"), AddEdge(2, 3, "CHILD"), Stop()]
    assert written.finished
    assert edges_of(written.graph) == edges_of(family())
    assert sum(written.log_probs) > -2


def test_bad_input(tokenizer: PreTrainedTokenizerFast) -> None:
    writer = make(tokenizer)
    with pytest.raises(ValueError, match="'max_actions' is 0"):
        writer.write([family()], max_actions=0)
    for temperature in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="'temperature' is"):
            writer.write([family()], do_sample=True, temperature=temperature)
    data = family()
    data.x = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="the graph has 'x', which written nodes or edges lack"):
        writer.write([data])
    assert writer.write([]) == []
    small = GTLM(tiny("llama", vocab_size=len(tokenizer)), writer.model.tokenizer)
    with pytest.raises(ValueError, match="add tokens by GTLM"):
        GraphWriter(small, writer.prompt)
    with torch.no_grad():
        next(writer.model.graph_bias.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="logits are not finite"):
        writer.write([family()])
    assert not writer.model.training

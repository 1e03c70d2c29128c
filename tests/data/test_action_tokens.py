"""Whatever tokens are drawn, a written graph is valid; and what is allowed can be written."""

import copy
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import (
    CONTROL_TOKENS,
    Action,
    ActionTokens,
    AddEdge,
    AddNode,
    GraphGrammar,
    Stop,
    TextAttributedData,
)
from tests.data.written_graphs import TEXTS, assert_valid, edges_of, grammars, graphs
from tests.tiny import tiny_tokenizer

SPELT = tiny_tokenizer()
LEARNT = copy.deepcopy(SPELT)
LEARNT.add_tokens(list(CONTROL_TOKENS), special_tokens=True)
NAMES = (None, lambda text: text.split(",")[0], lambda text: "", lambda text: text[:2])
IDEOGRAPHIC_SPACE = SPELT("\u3000")["input_ids"]  # three tokens, none of them blank


def draw(tokens: ActionTokens, data: TextAttributedData, rng: random.Random, taste: str) -> tuple[Action, list[int]]:
    parser, ids = tokens.parser(data), []
    while parser.action is None:
        allowed = parser.allowed().tolist()
        assert len(set(allowed)) == len(allowed) > 0
        liked = [i for i in allowed if not tokens.decode([i]).strip()] if taste == "blank" else []
        ids.append(rng.choice(liked or allowed))
        parser.push(ids[-1])
        assert len(ids) < 200
    assert parser.allowed().numel() == 0
    return parser.action, ids


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), grammars(), st.sampled_from(NAMES), st.sampled_from(["any", "blank"]), st.integers(0, 99))
def test_any_tokens_that_are_allowed_make_a_valid_graph(data, grammar, name, taste, seed) -> None:  # type: ignore[no-untyped-def]
    tokens = ActionTokens(data.draw(st.sampled_from([SPELT, LEARNT])), grammar, name)
    before = data.draw(graphs(grammar))
    rng, state = random.Random(seed), before
    for _ in range(6):
        action, ids = draw(tokens, state, rng, taste)
        if isinstance(action, Stop):
            assert tuple(ids) == tokens.stop
            break
        after = grammar.apply(state, action)
        assert_valid(state, after, grammar)
        state = after
    assert_valid(before, state, grammar)


def with_edge(graph: TextAttributedData, edge: AddEdge, grammar: GraphGrammar) -> TextAttributedData:
    """The graph with an edge, allowed or not."""
    ways = {(edge.source, edge.target)}
    if grammar.is_symmetric(edge.relation):
        ways.add((edge.target, edge.source))
        missing = {way for way in ways if (*way, edge.relation) not in edges_of(graph)}
        ways = missing or ways
    out = copy.copy(graph)
    out.edge_index = torch.cat([graph.edge_index, torch.tensor(sorted(ways)).T], 1)
    if grammar.relations:
        out.text_edges = [*graph.text_edges, *(edge.relation for _ in ways)]
    return out


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data(), grammars(), st.sampled_from(NAMES))
def test_what_is_allowed_can_be_written_and_nothing_else(data, grammar, name) -> None:  # type: ignore[no-untyped-def]
    tokens, graph = ActionTokens(LEARNT, grammar, name), data.draw(graphs(grammar, 4))
    n = len(graph.text)
    everything: list[Action] = [AddEdge(u, v, r) for r in grammar.names for u in range(n) for v in range(n)]
    texts = sorted(set(TEXTS)) if grammar.node_texts is None else grammar.node_texts
    everything += [Stop(), *map(AddNode, texts)]
    refused: list[Action] = []
    for action in everything:
        try:
            ids = tokens.encode(action, graph)
        except ValueError:
            refused.append(action)
            continue
        parser = tokens.parser(graph)
        for token in ids.tolist():
            assert parser.action is None
            parser.push(token)
        assert parser.action == action
        if isinstance(action, AddEdge):
            assert_valid(graph, grammar.apply(graph, action), grammar)
    for action in refused:
        assert not isinstance(action, Stop)
        if isinstance(action, AddEdge):
            with pytest.raises(AssertionError):
                assert_valid(graph, with_edge(graph, action, grammar), grammar)
        else:
            too_long = len(tokens.field(action.text)) - 1 > grammar.max_text_tokens
            assert not grammar.add_nodes or (grammar.node_texts is None and too_long)


def test_what_actions_look_like() -> None:
    grammar = GraphGrammar(relations=("CHILD",))
    tokens = ActionTokens(LEARNT, grammar, lambda text: text.split(",")[0])
    graph = TextAttributedData(
        text=["Ada, female", "Bob, male"], edge_index=torch.tensor([[0], [1]]), text_edges=["CHILD"]
    )
    assert tokens.decode(tokens.encode(AddEdge(1, 0, "CHILD"), graph)) == "<ADD_EDGE> Bob<eos> CHILD<eos> Ada<eos>"
    assert tokens.decode(tokens.encode(AddNode("Eve"), graph)) == "<ADD_NODE> Eve<eos>"
    assert tokens.decode(tokens.encode(Stop(), graph)) == "<STOP>"
    assert len(tokens.add_node) == len(tokens.add_edge) == len(tokens.stop) == 1
    assert len(ActionTokens(SPELT, grammar).add_node) > 1
    plain = ActionTokens(SPELT, GraphGrammar(), controls=("add node", "add edge", "done"))
    graph = TextAttributedData(text=["Ada", "Bob"], edge_index=torch.tensor([[0], [1]]))
    assert plain.decode(plain.encode(AddEdge(1, 0), graph)) == "add edge Bob<eos> Ada<eos>"


def test_one_choice_after_the_other() -> None:
    tokens = ActionTokens(LEARNT, GraphGrammar(relations=("LIKES",), add_nodes=False))
    graph = TextAttributedData(
        text=["c", "w", "a"], edge_index=torch.tensor([[0, 0], [1, 2]]), text_edges=["LIKES"] * 2
    )
    parser = tokens.parser(graph)
    assert set(parser.allowed().tolist()) == {*tokens.add_edge, *tokens.stop}
    parser.push(tokens.add_edge[0])
    c, w, a = (tokens.field(name)[0] for name in graph.text)
    assert set(parser.allowed().tolist()) == {w, a}  # c is joined to all others already
    with pytest.raises(ValueError, match=f"token {c} is not allowed here"):
        parser.push(c)
    parser.push(w)
    for token in (tokens.end, *tokens.field("LIKES")):
        assert parser.allowed().tolist() == [token]
        parser.push(token)
    assert set(parser.allowed().tolist()) == {c, a}
    parser.push(c)
    parser.push(tokens.end)
    assert parser.action == AddEdge(1, 0, "LIKES")


def test_equal_names_get_numbers_that_the_reader_sees() -> None:
    tokens = ActionTokens(LEARNT, GraphGrammar(), lambda text: text.split(",")[0])
    texts = ["Ada, 1", "Bob, 2", "Ada, 3", "Ada (2), 4", "Ada, 5"]
    graph = TextAttributedData(text=texts, edge_index=torch.empty(2, 0, dtype=torch.long))
    names = [tokens.decode(ids) for ids in tokens.names(graph)]
    assert names == [f" {x}<eos>" for x in ("Ada", "Bob", "Ada (2)", "Ada (2) (2)", "Ada (3)")]
    assert tokens.readable(graph).text == ["Ada, 1", "Bob, 2", "Ada, 3 (2)", "Ada (2), 4 (2)", "Ada, 5 (3)"]
    assert graph.text == texts
    many = TextAttributedData(text=["same"] * 300, edge_index=torch.empty(2, 0, dtype=torch.long))
    assert len(tokens.names(many)) == 300


def test_a_text_cannot_end_a_field() -> None:
    tokens = ActionTokens(LEARNT, GraphGrammar())
    for text in ("a<eos>b", "<STOP>", "<eos>"):
        assert tokens.field(text).count(tokens.end) == 1
        assert not {*tokens.stop, *tokens.add_edge} & set(tokens.field(text))
        assert tokens.decode(tokens.field(text)[:-1]).strip() == text


def test_written_texts_have_no_special_tokens_and_end_in_time() -> None:
    tokens = ActionTokens(LEARNT, GraphGrammar(max_text_tokens=3))
    graph = TextAttributedData(text=["a"], edge_index=torch.empty(2, 0, dtype=torch.long))
    parser = tokens.parser(graph)
    parser.push(tokens.add_node[0])
    assert not set(parser.allowed().tolist()) & set(LEARNT.all_special_ids)  # not even the end: the text is empty
    for _ in range(3):
        parser.push(LEARNT("b")["input_ids"][0])
    assert parser.allowed().tolist() == [tokens.end]
    with pytest.raises(ValueError, match="has 5 tokens, expected at most 3"):
        tokens.encode(AddNode("bbbb"), graph)


def test_a_space_in_parts_is_no_text() -> None:
    tokens = ActionTokens(LEARNT, GraphGrammar(max_text_tokens=4))
    graph = TextAttributedData(text=[], edge_index=torch.empty(2, 0, dtype=torch.long))
    parser = tokens.parser(graph)
    parser.push(tokens.add_node[0])
    for token in IDEOGRAPHIC_SPACE:
        parser.push(token)
    assert tokens.end not in parser.allowed()
    assert set(parser.allowed().tolist()) == set(tokens.visible_ids.tolist())
    tokens = ActionTokens(LEARNT, GraphGrammar(max_text_tokens=3))
    parser = tokens.parser(graph)
    for token in (tokens.add_node[0], *IDEOGRAPHIC_SPACE[:2]):
        parser.push(token)
    assert IDEOGRAPHIC_SPACE[2] not in parser.allowed()
    parser.push(LEARNT("b")["input_ids"][0])
    parser.push(tokens.end)
    assert parser.action.text.endswith("b")


def test_bad_input(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="control 'add' is empty or begins another"):
        ActionTokens(tokenizer, GraphGrammar(), controls=("add", "add edge", "stop"))
    with pytest.raises(ValueError, match="expected three: node, edge, stop"):
        ActionTokens(tokenizer, GraphGrammar(), controls=("add",))
    bare = copy.deepcopy(tokenizer)
    bare.eos_token = None
    with pytest.raises(ValueError, match="no 'eos_token', which ends a field"):
        ActionTokens(bare, GraphGrammar())
    tokens = ActionTokens(tokenizer, GraphGrammar())
    with pytest.raises(ValueError, match="lone surrogate"):
        tokens.field("\ud800")
    with pytest.raises(ValueError, match="does not tell all of"):
        ActionTokens(tokenizer, GraphGrammar(relations=("a", "a ")))
    graph = TextAttributedData(text=["a"], edge_index=torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"AddEdge\(source=0, target=0, relation=''\) is not allowed"):
        tokens.encode(AddEdge(0, 0), graph)

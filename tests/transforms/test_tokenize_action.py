"""What a writer reads."""

import copy

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import ActionTokens, AddEdge, GraphGrammar, Stop, TextAttributedData
from pyg_textgraph.transforms import AddSPD, SerializeGraph, TokenizeAction


def graph() -> TextAttributedData:
    return TextAttributedData(text=["Ada", "Bob"], edge_index=torch.tensor([[0], [1]]), text_edges=["CHILD"])


def texts(data: TextAttributedData, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return [tokenizer.decode(ids) for ids in data.input_ids.split(data.num_tokens.tolist())]


def test_the_instruction_is_one_more_node(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = TokenizeAction(
        ActionTokens(tokenizer, GraphGrammar(relations=("CHILD",)), controls=("node", "edge", "stop")),
        "Complete it.",
        AddSPD(8),
    )
    data = graph()
    data.action = AddEdge(1, 0, "CHILD")
    out = prompt(data)
    answer = "edge Bob<eos> CHILD<eos> Ada<eos>"
    assert texts(out, tokenizer) == ["Ada", "Bob", "CHILD", f"Complete it.\n A:{answer}"]
    assert tokenizer.decode(out.labels[out.labels >= 0]) == answer
    assert out.target == 3
    assert out.edge_index.T.tolist() == [[0, 2], [2, 1], [3, 0], [3, 1], [3, 2]]
    assert out.spd.view(4, 4).tolist() == [[0, 2, 1, -1], [-1, 0, -1, -1], [-1, 1, 0, -1], [1, 1, 1, 0]]
    assert "action" not in out
    del data["action"]
    data.instruction, data.mentions = "Who?", [1]
    out = prompt(data)
    assert texts(out, tokenizer)[-1] == "Who?\n A:"
    assert out.edge_index.T.tolist() == [[0, 2], [2, 1], [3, 1]]
    assert (out.labels == -100).all()


def test_edges_without_names_stay_edges(tokenizer: PreTrainedTokenizerFast) -> None:
    data = graph()
    del data["text_edges"]
    data.action = Stop()
    out = TokenizeAction(ActionTokens(tokenizer, GraphGrammar()))(data)
    assert out.num_nodes == 3
    assert out.edge_index.T.tolist() == [[0, 1], [2, 0], [2, 1]]


def test_the_graph_can_be_read_as_text(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = ActionTokens(tokenizer, GraphGrammar(relations=("CHILD",)), controls=("node", "edge", "stop"))
    data = graph()
    data.action = Stop()
    [text] = texts(TokenizeAction(tokens, "Complete it.", SerializeGraph(tokenizer))(data), tokenizer)
    assert text == "Nodes:\n0: Ada\n1: Bob\nEdges:\n(0, CHILD, 1)\n\nComplete it.\n A:stop"


def test_bad_input(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = TokenizeAction(ActionTokens(tokenizer, GraphGrammar(relations=("CHILD",))))
    data = graph()
    data.action = AddEdge(0, 1, "CHILD")
    with pytest.raises(ValueError, match="is not allowed in a graph of 2 nodes"):
        prompt(data)
    tokenized = copy.copy(graph())
    tokenized.num_tokens = torch.tensor([1, 1])
    with pytest.raises(ValueError, match="the graph has 'num_tokens'"):
        prompt(tokenized)
    assert repr(prompt) == "TokenizeAction('Complete the graph.', transform=None)"

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import NEIGHBOR_LABELS, NODE_CLASS, GraphPrompt, TextAttributedData, linearize, node_order
from pyg_textgraph.data.linearization import graph_text
from tests.tiny import tiny_tokenizer

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT


def with_template(template: str | None, trim_offsets: bool = False) -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    if trim_offsets:
        tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def sentence_pieces() -> PreTrainedTokenizerFast:
    """Spaces become ▁, as in Llama 2 and Gemma."""
    alphabet = {chr(c): c for c in range(32, 127)} | {"▁": 200, "\n": 201, "<eos>": 0, "▁N": 202, "ode": 203}
    bpe = Tokenizer(models.BPE(vocab=alphabet | {"od": 204}, merges=[("▁", "N"), ("o", "d"), ("od", "e")]))
    bpe.normalizer = normalizers.Replace(" ", "▁")
    bpe.decoder = decoders.Replace("▁", " ")
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", pad_token="<eos>")


def words() -> PreTrainedTokenizerFast:
    """Splits at borders of words and drops white space."""
    vocab = {"<unk>": 0, "<eos>": 1, "Node": 2, "Label": 3, ":": 4, "Neighbors": 5, "?": 6}
    level = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    level.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=level, eos_token="<eos>", unk_token="<unk>")


TOKENIZERS = {
    "bytes": with_template(None),
    "bytes, trimmed offsets": with_template(None, trim_offsets=True),
    "bytes, chat": with_template(CHAT),
    "bytes, chat without system": with_template(NO_SYSTEM, trim_offsets=True),
    "pieces": sentence_pieces(),
}


def graph(texts: list[str], edges: list[tuple[int, int]]) -> TextAttributedData:
    return TextAttributedData(
        text=texts, edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).T, num_nodes=len(texts)
    )


def blocks(prompt: GraphPrompt) -> list[str]:
    return [prompt.text[start:end] for start, end in prompt.block.tolist()]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(
    texts=st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126) | st.just(" ")), min_size=1, max_size=5),
    order=st.sampled_from(["random", "bfs", "rcm"]),
)
def test_a_nodes_tokens_decode_to_its_block(name: str, texts: list[str], order: str) -> None:
    tokenizer = TOKENIZERS[name]
    data = graph(texts, [(0, v) for v in range(1, len(texts))])
    prompt = linearize(data, tokenizer, NODE_CLASS, order=order, options=["red", "blue"])  # type: ignore[arg-type]
    for v, block in enumerate(blocks(prompt)):
        # trimmed offsets may leave white space at a block's end to the separator
        assert tokenizer.decode(prompt.input_ids[prompt.node == v]).rstrip() == block.rstrip()
    outside = tokenizer.decode(prompt.input_ids[prompt.node < 0])
    assert "Node" not in outside
    assert tokenizer.decode(prompt.input_ids) == prompt.text


@pytest.mark.parametrize("name", ["bytes", "bytes, trimmed offsets"])
def test_characters_of_several_tokens(name: str) -> None:
    prompt = linearize(graph(["naïve 図 🙂", "plain"], [(0, 1)]), TOKENIZERS[name], NODE_CLASS)
    for v, block in enumerate(blocks(prompt)):
        assert TOKENIZERS[name].decode(prompt.input_ids[prompt.node == v]) == block


def test_tokens_of_a_tokenizer_that_drops_white_space() -> None:
    prompt = linearize(graph(["a", "b"], [(0, 1)]), words(), NEIGHBOR_LABELS, labels=["x", "y"])
    for v in range(2):
        assert words().decode(prompt.input_ids[prompt.node == v]).startswith("Node <unk> Label :")


def test_a_token_across_a_border_belongs_to_no_node() -> None:
    bpe = Tokenizer(models.BPE(vocab={"1": 0, "\n": 1, "1\n": 2}, merges=[("1", "\n")], unk_token="1"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>")
    prompt = linearize(graph(["", ""], [(0, 1)]), tokenizer, NEIGHBOR_LABELS)
    crossing = (prompt.input_ids == 2).nonzero().view(-1)
    last = prompt.node[crossing]
    assert int((last == -1).sum()) >= 1  # "Neighbors: 1" + separator
    assert int((last >= 0).sum()) >= 1  # "Node 1" + end of line


def test_the_prompt_reads_as_written() -> None:
    data = graph(["one two three", "four", "five"], [(0, 1), (2, 1), (1, 2)])
    prompt = linearize(
        data, TOKENIZERS["bytes"], NODE_CLASS, labels={1: "red"}, options=["red", "blue"], names=["A", "B", "C"],
        max_words=2, order=[2, 1, 0],
    )  # fmt: skip
    assert blocks(prompt) == [
        "Node A\nText: one two\nLabel: ?\nNeighbors: B",
        "Node B\nText: four\nLabel: red\nNeighbors: A, C",
        "Node C\nText: five\nLabel: ?\nNeighbors: B",
    ]
    assert prompt.text.endswith("Question: Which of the labels red, blue does node A have? Answer:")
    assert prompt.lead == " "
    assert prompt.block.argsort(0)[:, 0].tolist() == [2, 1, 0]


def test_demonstrations_and_system_message_go_through_the_chat() -> None:
    data = graph(["a", "b"], [(0, 1)])
    shown = [("Which color?", "red")]
    for name in ("bytes, chat", "bytes, chat without system"):
        prompt = linearize(data, TOKENIZERS[name], NODE_CLASS, demonstrations=shown, options=["red", "blue"])
        assert "Which color?\n<|assistant|>\nred\n<|user|>" in prompt.text
        assert prompt.text.count(NODE_CLASS.system) == 1
        assert ("<|system|>" in prompt.text) == (name == "bytes, chat")
        assert prompt.lead == ""
    assert "Which color? red\n\n" in linearize(data, TOKENIZERS["bytes"], NODE_CLASS, demonstrations=shown).text


@pytest.mark.parametrize("seed", range(3))
def test_orders(seed: int) -> None:
    network = nx.gnp_random_graph(12, 0.2, seed=seed)
    edge_index = from_networkx(network).edge_index
    for order in ("random", "bfs", "rcm"):
        sequence = node_order(edge_index, 12, order, ego=4, seed=seed)  # type: ignore[arg-type]
        assert sorted(sequence) == list(range(12))
        assert sequence[-1] == 4
    hops = nx.single_source_shortest_path_length(network, 4)
    levels = [hops.get(v, 99) for v in node_order(edge_index, 12, "bfs", ego=4)]
    assert levels == sorted(levels, reverse=True)
    assert node_order(edge_index, 12, "random", 4, 1) != node_order(edge_index, 12, "random", 4, 2)


def test_reverse_cuthill_mckee_follows_a_path() -> None:
    mixed = torch.tensor([[3, 0, 4, 1], [0, 4, 1, 2]])  # 3-0-4-1-2
    assert node_order(mixed, 5, "rcm", ego=2) == [3, 0, 4, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ego": 7}, "'ego' is 7"),
        ({"order": "dfs"}, "'order' is 'dfs'"),
        ({"order": [0, 1]}, "the ego"),
        ({"names": ["A", "A"]}, "different names"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linearize(graph(["a", "b"], [(0, 1)]), TOKENIZERS["bytes"], NODE_CLASS, **arguments)  # type: ignore[arg-type]


def test_a_plain_graph_needs_no_texts() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3)
    prompt = linearize(data, TOKENIZERS["bytes"], NEIGHBOR_LABELS, labels=[None, "red", "blue"])
    assert blocks(prompt)[2] == "Node 2\nLabel: blue\nNeighbors: none"


def test_an_order_may_be_a_tensor() -> None:
    data = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0], [1]]))
    labels = {0: "x", 1: "y"}
    order = [1, 0]  # the ego, node 0, last
    listed, blocks = graph_text(data, NODE_CLASS, order=order, labels=labels)
    text, same = graph_text(data, NODE_CLASS, order=torch.tensor(order), labels=labels)
    assert text == listed
    assert torch.equal(same, blocks)
    assert "y" in listed

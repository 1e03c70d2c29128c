"""Tokenization, the token store, questions and answers."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from transformers import PreTrainedTokenizerFast

from pyg_textgraph.data import (
    TaskPrompt,
    TextAttributedData,
    TokenStore,
    add_question_node,
    append_to_target,
    tokenize,
    tokenize_texts,
)
from pyg_textgraph.data.prompts import drop_answer
from pyg_textgraph.transforms import TokenizeQuestion, TokenizeText

TEXTS = ["run: move fast", "rain, snow", "über – ☃ 雪", "a"]


def test_texts_come_back(tokenizer: PreTrainedTokenizerFast) -> None:
    ids, count = tokenize_texts(TEXTS, tokenizer, chunk=3)
    parts = ids.split(count.tolist())
    assert [tokenizer.decode(part) for part in parts] == TEXTS


@pytest.mark.parametrize("empty", ["", "   ", "\n"])
def test_empty_texts_need_a_placeholder(tokenizer: PreTrainedTokenizerFast, empty: str) -> None:
    with pytest.raises(ValueError, match="text 1 has no tokens; pass empty="):
        tokenize_texts(["a", empty], tokenizer)
    ids, count = tokenize_texts(["a", empty], tokenizer, empty="none")
    assert tokenizer.decode(ids[count[0] :]) == "none"
    with pytest.raises(ValueError, match="text 1 has no tokens"):
        tokenize_texts(["a", empty], tokenizer, empty="")


def test_texts_are_strings(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(TypeError, match="text 1 is NoneType, expected str"):
        tokenize_texts(["a", None], tokenizer)  # type: ignore[list-item]


def test_cuts_target_and_others_apart(tokenizer: PreTrainedTokenizerFast) -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), text_nodes=TEXTS, num_nodes=4, target=1)
    out = tokenize(data, tokenizer, max_tokens=2, max_target_tokens=3)
    assert out.num_tokens.tolist() == [2, 3, 2, 1]
    full = tokenize(data, tokenizer)
    ptr = full.token_ptr
    expected = [full.input_ids[ptr[i] : ptr[i] + n] for i, n in enumerate(out.num_tokens.tolist())]
    assert torch.equal(out.input_ids, torch.cat(expected))
    assert out.validate()


def test_texts_must_be_there(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="neither 'text' nor 'text_nodes'"):
        tokenize(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), tokenizer)
    with pytest.raises(ValueError, match="'text' has 1 entries but the graph has 2 nodes"):
        tokenize(Data(edge_index=torch.tensor([[0], [1]]), text=["a"], num_nodes=2), tokenizer)


class TestTokenStore:
    def test_gathers_any_nodes_in_any_order(self, tokenizer: PreTrainedTokenizerFast) -> None:
        store = TokenStore.from_texts(TEXTS, tokenizer)
        ids, count = store.gather(torch.tensor([2, 0, 2]))
        assert [tokenizer.decode(x) for x in ids.split(count.tolist())] == [TEXTS[2], TEXTS[0], TEXTS[2]]
        assert tokenizer.decode(store[-1]) == TEXTS[-1]
        assert store.gather(torch.empty(0, dtype=torch.long))[0].numel() == 0

    def test_saved_store_is_mapped_and_travels_as_its_path(
        self, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
    ) -> None:
        store = TokenStore.from_texts(TEXTS, tokenizer)
        store.save(tmp_path / "store")
        loaded = TokenStore.load(tmp_path / "store")
        sent = pickle.loads(pickle.dumps(loaded))
        for other in (loaded, sent, pickle.loads(pickle.dumps(store))):
            assert len(other) == len(TEXTS)
            assert torch.equal(other.gather(torch.arange(4))[0], store.gather(torch.arange(4))[0])
        assert isinstance(sent._ids, np.memmap)
        assert len(pickle.dumps(loaded)) < 500

    def test_half_written_stores_are_refused(self, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
        TokenStore.from_texts(TEXTS, tokenizer).save(tmp_path)
        (tmp_path / "store.json").write_text(json.dumps({"num_texts": 9, "num_tokens": 1}))
        with pytest.raises(ValueError, match=r"its store\.json says"):
            TokenStore.load(tmp_path)
        (tmp_path / "store.json").unlink()
        with pytest.raises(FileNotFoundError, match="the store is not complete"):
            TokenStore.load(tmp_path)

    def test_bad_input(self) -> None:
        store = TokenStore(torch.arange(3), torch.tensor([1, 2]))
        with pytest.raises(IndexError, match="'nodes' holds 2 but there are 2 texts"):
            store.gather(torch.tensor([0, 2]))
        with pytest.raises(ValueError, match="'max_tokens' is 0"):
            store.gather(torch.tensor([0]), max_tokens=0)
        with pytest.raises(ValueError, match="adds up to 2 but there are 3"):
            TokenStore(torch.arange(3), torch.tensor([1, 1]))


class TestPrompt:
    def tokenized(self, tokenizer: PreTrainedTokenizerFast, target: int) -> TextAttributedData:
        data = TextAttributedData(text=TEXTS, edge_index=torch.tensor([[0], [1]]), target=target)
        return tokenize(data, tokenizer)

    @pytest.mark.parametrize("target", [0, 2, 3])
    def test_question_and_answer_stand_at_the_end_of_the_target(
        self, tokenizer: PreTrainedTokenizerFast, target: int
    ) -> None:
        prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
        before = self.tokenized(tokenizer, target)
        after = prompt.append(before, answer=1)
        assert after.validate()
        ptr = after.token_ptr
        for node, text in enumerate(TEXTS):
            own = after.input_ids[ptr[node] : ptr[node + 1]]
            expected = text + "\n\nWhich?\n A: weather<eos>" if node == target else text
            assert tokenizer.decode(own) == expected
        supervised = after.labels >= 0
        assert torch.equal(after.labels[supervised], after.input_ids[supervised])
        assert tokenizer.decode(after.labels[supervised]) == " weather<eos>"
        assert "labels" not in before
        dropped = drop_answer(after)
        assert torch.equal(dropped.input_ids, prompt.append(before).input_ids)
        assert not bool((dropped.labels >= 0).any())

    def test_answers_differ(self, tokenizer: PreTrainedTokenizerFast) -> None:
        with pytest.raises(ValueError, match="'answers' holds 'a' and 'a', whose tokens are the same"):
            TaskPrompt(tokenizer, "Which?", ["a", "b", "a"])
        with pytest.raises(ValueError, match="answer '  ' has no tokens"):
            TaskPrompt(tokenizer, "Which?", ["  "])

    def test_needs_tokens_and_target(self, tokenizer: PreTrainedTokenizerFast) -> None:
        with pytest.raises(ValueError, match="the graph has no 'input_ids'"):
            append_to_target(TextAttributedData(text=["a"], target=0), torch.arange(2))

    def test_transform_reads_the_label(self, tokenizer: PreTrainedTokenizerFast) -> None:
        prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
        data = Data(edge_index=torch.tensor([[0], [1]]), text=TEXTS, num_nodes=4, target=3, y=torch.tensor([1]))
        out = TokenizeText(tokenizer, prompt, max_tokens=2)(data)
        assert tokenizer.decode(out.labels[out.labels >= 0]) == " weather<eos>"
        assert out.num_tokens[:3].tolist() == [2, 2, 2]
        assert "labels" not in TokenizeText(tokenizer)(data)

    def test_a_negative_class_is_unknown(self, tokenizer: PreTrainedTokenizerFast) -> None:
        prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
        data = Data(edge_index=torch.tensor([[0], [1]]), text=TEXTS, num_nodes=4, target=3, y=torch.tensor([-1]))
        out = TokenizeText(tokenizer, prompt)(data)
        assert (out.labels == -100).all()
        assert tokenizer.decode(out.input_ids).endswith("Which?\n A:")
        with pytest.raises(ValueError, match="'answer' is -1, expected an index of 2 answers"):
            prompt.append(tokenize(data, tokenizer), -1)

    def test_one_class_per_node(self, tokenizer: PreTrainedTokenizerFast) -> None:
        prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
        data = Data(
            edge_index=torch.tensor([[0], [1]]), text=TEXTS, num_nodes=4, target=3, y=torch.tensor([0, 0, 0, 1])
        )
        out = TokenizeText(tokenizer, prompt)(data)
        assert tokenizer.decode(out.labels[out.labels >= 0]) == " weather<eos>"
        data.y = torch.tensor([0, 1])
        with pytest.raises(ValueError, match=r"'y' is of shape \(2,\), expected one class, or one of each node"):
            TokenizeText(tokenizer, prompt)(data)

    def test_question_node_points_at_what_it_mentions(self) -> None:
        data = Data(edge_index=torch.tensor([[0], [1]]), text=["a", "b", "c"], num_nodes=3)
        out = add_question_node(data, "Is a linked to b?", [0, 1])
        assert out.num_nodes == 4
        assert out.target == 3
        assert out.text[-1] == "Is a linked to b?"
        assert out.edge_index.tolist() == [[0, 3, 3], [1, 0, 1]]
        assert add_question_node(data, "How many?").edge_index.tolist() == [[0, 3, 3, 3], [1, 0, 1, 2]]
        with pytest.raises(ValueError, match=r"'mentions' is \[5\]"):
            add_question_node(data, "?", [5])
        data.y = torch.tensor([1])  # one number is the graph's, though there is one edge
        assert add_question_node(data, "?").y.tolist() == [1]
        for key, value in (("edge_attr", torch.ones(1)), ("text_edges", ["r"])):
            with pytest.raises(ValueError, match=rf"edges carry \['{key}'\]"):
                add_question_node(Data(**data.to_dict() | {key: value}), "?")
        with pytest.raises(ValueError, match="the graph has 'x', which a question lacks"):
            add_question_node(Data(**data.to_dict() | {"x": torch.ones(3, 2)}), "?")


def test_a_question_needs_no_edges(tokenizer: PreTrainedTokenizerFast) -> None:
    out = add_question_node(TextAttributedData(text=["a", "b"]), "q", [1])
    assert out.edge_index.tolist() == [[2], [1]]
    sparse = torch.sparse_coo_tensor([[1], [0]], [1.0], (2, 2)).to_sparse_csr()  # 0 → 1, transposed
    with pytest.raises(ValueError, match="edges carry"):
        add_question_node(Data(text=["a", "b"], adj_t=sparse, num_nodes=2), "q")


def test_a_question_knows_no_class(tokenizer: PreTrainedTokenizerFast) -> None:
    data = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    data.train_mask, data.weight, data.kind = torch.ones(2, dtype=torch.bool), torch.ones(2), ["x", "y"]
    out = add_question_node(data, "q")
    assert out.y.tolist() == [0, 1, -1]
    assert out.train_mask.tolist() == [True, True, False]
    assert out.weight.isnan().tolist() == [False, False, True]
    assert out.kind == ["x", "y", ""]
    assert data.y.tolist() == [0, 1]


def test_answers_with_equal_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="'run' and 'run ', whose tokens are the same"):
        TaskPrompt(tokenizer, "q", ["run", "run "])


def test_a_question_about_an_empty_text(tokenizer: PreTrainedTokenizerFast) -> None:
    data = add_question_node(TextAttributedData(text=["a", ""]), "q")
    with pytest.raises(ValueError, match="text 1 has no tokens; pass empty="):
        TokenizeQuestion(tokenizer)(data)
    assert TokenizeQuestion(tokenizer, empty="none")(data).num_tokens[1] > 0

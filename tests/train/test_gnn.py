from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch_geometric.data import Data

from pyg_textgraph.train import GNNConfig, embed_texts, train_gnn
from tests.text_encoders import tiny_encoder, tiny_text_tokenizer

TEXTS = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9 w1", "w2 w2"]
SMALL = GNNConfig(hidden=16, epochs=40, patience=40)


def test_embeddings_are_mean_states_of_each_text_alone(tmp_path: Path) -> None:
    encoder, tokenizer = tiny_encoder(), tiny_text_tokenizer()
    found = embed_texts(TEXTS, encoder, tokenizer, batch_size=3, max_tokens=20, folder=tmp_path)
    for text, row in zip(TEXTS, found, strict=True):
        states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].float()
        assert_close(row, F.normalize(states.mean(0), dim=-1).detach())
    cut = embed_texts(TEXTS, encoder, tokenizer, max_tokens=2, folder=tmp_path)
    assert_close(cut[1:2], found[1:2])
    assert not torch.allclose(cut[0], found[0])


def test_embeddings_are_read_back_unless_texts_or_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, tokenizer = tiny_encoder(), tiny_text_tokenizer()
    first = embed_texts(TEXTS, encoder, tokenizer, folder=tmp_path)
    calls: list[int] = []
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda **inputs: calls.append(1) or forward(**inputs))
    assert torch.equal(embed_texts(TEXTS, encoder, tokenizer, folder=tmp_path), first)
    assert not calls
    embed_texts(TEXTS[::-1], encoder, tokenizer, folder=tmp_path)
    assert len(calls) == 1
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight[5:] *= torch.linspace(0.2, 2, 16)
    assert not torch.allclose(embed_texts(TEXTS, encoder, tokenizer, folder=tmp_path), first)
    assert len(calls) == 2


def communities() -> tuple[Data, torch.Tensor]:
    """Two dense communities, 20 nodes each; every fourth node has its class as features, the others have none."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) // 20
    pairs = torch.combinations(torch.arange(40)).T
    keep = torch.rand(pairs.size(1), generator=generator) < torch.where(y[pairs[0]] == y[pairs[1]], 0.5, 0.02)
    told = (torch.arange(40) % 4 == 3)[:, None]
    return Data(edge_index=pairs[:, keep], y=y, num_nodes=40), (F.one_hot(y, 8) * told).float()


@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_gnns_use_the_graph(name: str) -> None:
    data, x = communities()
    train, validation, nodes = torch.arange(0, 40, 4), torch.arange(1, 40, 4), torch.arange(2, 40, 4)
    answers = train_gnn(name, x, data, train, validation, nodes, config=SMALL)
    alone = Data(edge_index=torch.empty(2, 0, dtype=torch.long), y=data.y, num_nodes=40)
    without = train_gnn(name, x, alone, train, validation, nodes, config=SMALL)
    assert (answers == data.y[nodes]).float().mean() > 0.85
    assert without.unique().numel() == 1  # nothing tells these nodes apart


def test_perceptrons_do_not_use_the_graph() -> None:
    data, x = communities()
    train, validation, nodes = torch.arange(3, 40, 8), torch.arange(7, 40, 8), torch.arange(40)
    answers = train_gnn("mlp", x, data, train, validation, nodes, config=SMALL)
    assert answers[3::4].equal(data.y[3::4])  # features tell
    assert answers[0::4].unique().numel() == 1


def test_the_earliest_best_state_on_validation_answers() -> None:
    """Longer training changes nothing once validation nodes are all right."""
    data, x = communities()
    train, validation, nodes = torch.arange(3, 40, 8), torch.arange(7, 40, 8), torch.arange(40)
    short, long = (replace(SMALL, epochs=epochs, patience=epochs) for epochs in (20, 60))
    first, second = (train_gnn("gcn", x, data, train, validation, nodes, config=c, seed=1) for c in (short, long))
    assert first[validation].equal(data.y[validation])
    assert first.equal(second)


def test_same_seed_same_answers_and_no_test_label_is_read() -> None:
    data, x = communities()
    train, validation, nodes = torch.arange(0, 40, 4), torch.arange(1, 40, 4), torch.arange(2, 40, 4)
    before = torch.get_rng_state()
    first = train_gnn("gcn", x, data, train, validation, nodes, config=SMALL, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    data.y = data.y.clone()
    data.y[nodes] = 7
    assert torch.equal(first, train_gnn("gcn", x, data, train, validation, nodes, config=SMALL, seed=3))


def test_bad_input_is_named(tmp_path: Path) -> None:
    data, x = communities()
    some = torch.arange(3)
    with pytest.raises(ValueError, match="build_gnn: 'name' is 'gin', expected one of"):
        train_gnn("gin", x, data, some, some, some)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'x' has 39 rows but the graph has 40 nodes"):
        train_gnn("gcn", x[1:], data, some, some, some)
    with pytest.raises(ValueError, match="at least one node"):
        train_gnn("gcn", x, data, some, some[:0], some)
    with pytest.raises(ValueError, match="'encoder' and 'tokenizer' belong together"):
        embed_texts(TEXTS, tiny_encoder(), folder=tmp_path)
    with pytest.raises(ValueError, match="'texts' is empty"):
        embed_texts([], folder=tmp_path)

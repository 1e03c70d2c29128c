import numpy as np
import pytest
import torch

from pyg_textgraph.data import TokenStore
from pyg_textgraph.sampling import CSRGraph, NeighborTextSampler, sample_neighbors
from tests.text_encoders import text_graph, tiny_text_tokenizer

# a star: 0 – 1 … 20, edges in both directions and one twice
STAR = np.array([[0] * 10 + list(range(11, 21)) + [3, 3], list(range(1, 11)) + [0] * 10 + [0, 3]])
GRAPH = CSRGraph.from_edge_index(STAR, 22)


def sample(centres: list[int], k: int, **kwargs: object) -> list[list[int]]:
    return sample_neighbors(GRAPH, np.array(centres), k, **kwargs).tolist()


def test_neighbours_of_either_direction_each_once() -> None:
    assert sorted(sample([0], 20)[0]) == list(range(1, 21))
    assert sample([3, 21], 3) == [[0, -1, -1], [-1, -1, -1]]


def test_uniform_without_replacement() -> None:
    hits = np.zeros(21)
    for epoch in range(2000):
        drawn = sample([0], 5, epoch=epoch)[0]
        assert len(set(drawn)) == 5
        hits[drawn] += 1
    assert hits[0] == 0
    assert np.abs(hits[1:] / 2000 - 5 / 20).max() < 0.04


def test_depends_on_seed_epoch_and_centre_only() -> None:
    alone, together = sample([0], 5, seed=3, epoch=1), sample([4, 0, 9, 0], 5, seed=3, epoch=1)
    assert together[1] == together[3] == alone[0]
    assert sample([0], 5, seed=4, epoch=1) != alone
    assert sample([0], 5, seed=3, epoch=2) != alone
    assert sample([0], 3, seed=3, epoch=1)[0] == alone[0][:3]


def test_the_other_end_of_a_link_is_never_drawn() -> None:
    for epoch in range(50):
        assert 7 not in sample([0], 19, exclude=np.array([7]), epoch=epoch)[0]
    assert sample([7], 3, exclude=np.array([0])) == [[-1, -1, -1]]


def test_first_neighbours() -> None:
    assert sample([0], 4, choice="first") == [[1, 2, 3, 4]]
    assert sample([0], 4, choice="first", exclude=np.array([2])) == [[1, 3, 4, 5]]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="'centres' holds 22"):
        sample([22], 3)
    with pytest.raises(ValueError, match="'choice'"):
        sample([0], 3, choice="last")


def sampler(disjoint: bool = False, max_tokens: int | None = None, num_neighbors: int = 3) -> NeighborTextSampler:
    data, tokenizer = text_graph(), tiny_text_tokenizer()
    store = TokenStore.from_texts(data.text, tokenizer)
    return NeighborTextSampler(store, data.edge_index, tokenizer, num_neighbors, max_tokens, disjoint=disjoint)


@pytest.mark.parametrize("disjoint", [False, True])
def test_batch_of_texts(disjoint: bool) -> None:
    ours, nodes = sampler(disjoint), torch.tensor([0, 3, 8, 0])
    batch = ours(nodes)
    assert batch.neighbor_nodes.tolist() == ours.neighbors(nodes).tolist()
    others = batch.node[4:].tolist()
    assert (len(others) == len(set(others))) is not disjoint
    assert sorted(batch.neighbors[batch.neighbors >= 0].unique().tolist()) == list(range(4, len(batch.node)))
    for number, node in enumerate(batch.node.tolist()):
        start = int(batch.texts.first[number])
        expected = [2, *ours.store[node].tolist(), 3]
        assert batch.texts.input_ids[start : start + len(expected)].tolist() == expected


def test_texts_are_cut_with_their_end_kept() -> None:
    batch = sampler(max_tokens=4)(torch.arange(9))
    assert batch.texts.max_length == 4
    assert (batch.texts.input_ids == 3).sum() == batch.texts.num_texts
    with pytest.raises(ValueError, match="'max_tokens'"):
        sampler(max_tokens=2)


def test_no_neighbours_at_all() -> None:
    batch = sampler(num_neighbors=0)(torch.arange(9))
    assert batch.neighbors.shape == (9, 0)
    assert batch.texts.num_texts == 9


def test_a_tokenizer_without_ends_is_refused() -> None:
    tokenizer = tiny_text_tokenizer()
    tokenizer.cls_token = None
    with pytest.raises(ValueError, match="cls_token"):
        NeighborTextSampler(TokenStore.from_texts(["w1"], tokenizer), torch.empty(2, 0, dtype=torch.long), tokenizer)

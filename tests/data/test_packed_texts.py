import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_textgraph.data import NeighborBatch, PackedTexts


@given(st.lists(st.integers(1, 6), max_size=9), st.integers(0, 9))
def test_every_text_is_where_it_is_said_to_be(num_tokens: list[int], num_centres: int) -> None:
    num_centres = min(num_centres, len(num_tokens))
    count = torch.tensor(num_tokens, dtype=torch.long)
    ids = torch.arange(int(count.sum())) * 7
    texts = PackedTexts.pack(ids, count, num_centres)
    assert texts.num_texts == len(num_tokens)
    assert texts.max_length == max(num_tokens, default=0)
    for number, own in enumerate(ids.split(num_tokens)):
        start = int(texts.first[number])
        assert texts.input_ids[start : start + len(own)].tolist() == own.tolist()
        assert texts.position[start : start + len(own)].tolist() == list(range(len(own)))
    lengths = [length for n, length in texts.runs for _ in range(n)]
    assert lengths == count[texts.order].tolist()
    assert set(texts.order[:num_centres].tolist()) == set(range(num_centres))
    assert texts.num_centre_tokens == int(count[:num_centres].sum())
    centres = texts.centres()
    assert centres.num_texts == num_centres
    assert centres.first.tolist() == texts.first[:num_centres].tolist()
    assert centres.input_ids.numel() == centres.num_centre_tokens


def test_empty_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="text 1 has no tokens"):
        PackedTexts.pack(torch.tensor([1]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="adds up to 2"):
        PackedTexts.pack(torch.tensor([1]), torch.tensor([1, 1]))


def test_members_and_nodes_of_a_neighbourhood() -> None:
    texts = PackedTexts.pack(torch.arange(3), torch.ones(3, dtype=torch.long), num_centres=2)
    batch = NeighborBatch(texts, torch.tensor([[2, -1], [-1, -1]]), torch.tensor([40, 10, 7])).to("cpu")
    assert batch.members.tolist() == [[0, 2, -1], [1, -1, -1]]
    assert batch.neighbor_nodes.tolist() == [[7, -1], [-1, -1]]

"""The real MiniLM inside GraphFormers."""

import pytest
import torch
from torch.testing import assert_close

from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.nn import GraphFormers, PooledTextEncoder
from pyg_textgraph.pretrained import MINILM, fetch

pytestmark = pytest.mark.model
TEXTS = [
    "Learning with kernels.",
    "Support vector machines for large-scale text classification",
    "A note on sorting",
    "Deep residual networks are trained on images, and here is why the depth matters so much",
    "Query optimization in relational databases",
]
DATA = TextAttributedData(text=TEXTS, edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 0, 1]]))


@pytest.fixture(scope="module")
def model() -> GraphFormers:
    return GraphFormers.from_pretrained(fetch(MINILM)[0]).eval()


@torch.no_grad()
def test_without_neighbours_packing_changes_nothing(model: GraphFormers) -> None:
    """The text-only cascade, packed, is the encoder on padded texts."""
    text = PooledTextEncoder(model.encoder, model.tokenizer, "text").eval()
    assert model.tokenizer is not None
    padded = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = model.encoder(**padded).last_hidden_state[:, 0]
    assert_close(text.embed(DATA).embedding, expected, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_cached_equals_uncached(model: GraphFormers) -> None:
    sampler = model.sampler(DATA, num_neighbors=3)
    assert_close(model.embed(sampler).embedding, model(sampler(torch.arange(5))), atol=1e-5, rtol=1e-5)


def test_search_finds_the_related_text(model: GraphFormers) -> None:
    model.embed(DATA, num_neighbors=0)
    assert 1 in model.search("text classification with support vector machines", k=2)[1].tolist()

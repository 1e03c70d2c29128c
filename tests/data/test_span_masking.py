import pytest
import torch
from torch import Tensor

from pyg_textgraph.data import NeighborBatch, PackedTexts, SpanMasking
from tests.text_encoders import tiny_text_tokenizer

TOKENIZER = tiny_text_tokenizer()
CLS, SEP, MASK = 2, 3, 4


def batch_of(num_texts: int, length: int, num_centres: int = 0) -> NeighborBatch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 45, (num_texts, length), generator=generator)
    ids[:, 0], ids[:, -1] = CLS, SEP
    texts = PackedTexts.pack(ids.flatten(), torch.full((num_texts,), length), num_centres)
    return NeighborBatch(texts, torch.full((num_centres, 0), -1), torch.arange(num_texts))


def masked(masking: SpanMasking, batch: NeighborBatch, seed: int = 0) -> Tensor:
    return masking(batch, torch.Generator().manual_seed(seed)).texts.input_ids


@pytest.mark.parametrize("length", [6, 18, 102])
def test_share_of_each_kind(length: int) -> None:
    batch = batch_of(60_000 // length, length)
    before, after = batch.texts.input_ids, masked(SpanMasking(TOKENIZER), batch)
    chosen = SpanMasking(TOKENIZER).choose(before.view(-1, length) > 4, torch.Generator().manual_seed(0)).flatten()
    ordinary = before > 4
    assert chosen.sum() / ordinary.sum() == pytest.approx(0.15, abs=0.01)
    assert (after == MASK).sum() / ordinary.sum() == pytest.approx(0.15 * 0.8, abs=0.01)
    # of 40 words a random one is another with 39/40
    changed = (after != before) & (after != MASK)
    assert changed.sum() / ordinary.sum() == pytest.approx(0.15 * 0.1 * 39 / 40, abs=0.003)
    assert (after[~ordinary] == before[~ordinary]).all(), "special tokens stay"
    assert not ((after < 4) & ordinary).any(), "no random token is special"


def test_spans_are_geometric_and_clipped() -> None:
    """In long texts spans rarely meet or end early, so runs of chosen tokens show the distribution."""
    masking = SpanMasking(TOKENIZER, share=0.02)
    chosen = masking.choose(torch.ones(60, 5000, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert chosen.sum(1).tolist() == [100] * 60
    edges = torch.nn.functional.pad(chosen, (1, 1)).long().diff(dim=1)
    lengths = (edges == -1).nonzero()[:, 1] - (edges == 1).nonzero()[:, 1]
    share = torch.bincount(lengths, minlength=12)[:12] / len(lengths)
    expected = [0.0, *(0.2 * 0.8 ** (n - 1) for n in range(1, 10)), 0.8**9]
    assert (share[:11] - torch.tensor(expected)).abs().max() < 0.03
    assert lengths.max() <= 20, "two that touch at most"


def test_all_tokens_can_be_chosen() -> None:
    """The number drawn is rounded in float32, where 4096 + 0.9999 is 4097: more than there are."""
    chosen = SpanMasking(TOKENIZER, share=1.0, longest=4096, p=0.001).choose(
        torch.ones(1, 4096, dtype=torch.bool), torch.Generator().manual_seed(18)
    )
    assert chosen.all()


def test_centres_only() -> None:
    batch = batch_of(400, 12, num_centres=100)
    before, after = batch.texts.input_ids, masked(SpanMasking(TOKENIZER, centres_only=True), batch)
    assert (after[: 100 * 12] != before[: 100 * 12]).any()
    assert (after[100 * 12 :] == before[100 * 12 :]).all()


def test_depends_on_the_generator_only() -> None:
    batch, masking = batch_of(50, 12), SpanMasking(TOKENIZER)
    assert (masked(masking, batch) == masked(masking, batch)).all()
    assert (masked(masking, batch) != masked(masking, batch, seed=1)).any()
    everything = masked(SpanMasking(TOKENIZER, share=1.0), batch)
    assert (everything == MASK).sum() > 0.7 * 50 * 10
    assert (masked(SpanMasking(TOKENIZER, share=0.0), batch) == batch.texts.input_ids).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="'share' and 'p'"):
        SpanMasking(TOKENIZER, share=1.5)
    tokenizer = tiny_text_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="mask_token"):
        SpanMasking(tokenizer)

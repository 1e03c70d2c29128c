from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from pyg_textgraph.data import SpanMasking, TextAttributedData
from pyg_textgraph.nn import GraphFormers, KnownLinks
from pyg_textgraph.sampling import NeighborTextSampler
from pyg_textgraph.train import Interrupted, LinkObjective, LinkTrainer, TrainConfig, in_batch_candidates, link_ranks
from pyg_textgraph.train.links import LinkBatch, stopped_improving
from pyg_textgraph.transforms import SplitTextLinks
from tests.text_encoders import text_graph, tiny_encoder, tiny_text_tokenizer

DATA = text_graph(num_nodes=24, num_edges=60)
TRAIN, VAL, _ = SplitTextLinks(6, 0)(DATA)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


def trainer_of(folder: Path, scores: list[float] | None = None, longest: float = 1.0, **config: int) -> LinkTrainer:
    """12 steps of 8 links, validated every second step with scores made up beforehand."""
    model = GraphFormers(tiny_encoder(dtype=torch.float32, initializer_range=0.1), tiny_text_tokenizer())
    assert model.tokenizer is not None
    told = iter(scores or [])
    objective = LinkObjective(model, KnownLinks(TRAIN.edge_index, 24), temperature=4.0)
    return LinkTrainer(
        objective,
        model.sampler(TRAIN, num_neighbors=3, max_tokens=8),
        TRAIN.edge_label_index[:, :32],
        torch.optim.AdamW(model.parameters(), lr=5e-3),
        TrainConfig(**{"epochs": 3, "batch_size": 8, "validate_every": 2} | config),
        folder,
        validate=None if scores is None else lambda _: next(told),
        masking=SpanMasking(model.tokenizer),
        longest=longest,
    )


def stages(trainer: LinkTrainer) -> list[bool]:
    """Whether each step was masked."""
    seen, update = [], trainer._update
    trainer._update = lambda batches: seen.append(trainer.masked) or update(batches)  # type: ignore[method-assign]
    trainer.run(resume=True)
    return seen


def test_patience() -> None:
    assert not stopped_improving([], 2)
    assert not stopped_improving([0.1, 0.1, 0.2, 0.2, 0.3], 2)
    assert stopped_improving([0.3, 0.3, 0.2], 2)
    assert stopped_improving([0.3, 0.2, 0.1, 0.9], 2), "once ended, the first stage does not come back"


def test_two_stages_follow_the_validation_score(tmp_path: Path) -> None:
    assert stages(trainer_of(tmp_path / "a", [0.1, 0.3, 0.2, 0.3, 0.9, 0.9])) == [True] * 8 + [False] * 4
    assert stages(trainer_of(tmp_path / "b", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])) == [True] * 12
    assert stages(trainer_of(tmp_path / "c", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], longest=0.5)) == [True] * 6 + [False] * 6


def test_masked_texts_in_the_first_stage_only(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, longest=0.5)
    some = torch.arange(8)
    mask = trainer.masking.mask_id
    assert (trainer.batch(some, 0).centres.texts.input_ids == mask).any()
    trainer.step = 6
    assert not (trainer.batch(some, 0).centres.texts.input_ids == mask).any()


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    scores = [0.1, 0.3, 0.2, 0.3, 0.2, 0.1]
    whole = trainer_of(tmp_path / "whole", scores)
    whole.run()
    broken = trainer_of(tmp_path / "broken", scores)
    update = broken._update

    def stop_at_seven(batches: list[object]) -> dict[str, float]:
        row = update(batches)
        if broken.step == 7:
            broken._save()
            raise Interrupted
        return row

    broken._update = stop_at_seven  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        broken.run()
    resumed = trainer_of(tmp_path / "broken", scores[3:])
    assert stages(resumed)[-4:] == [False] * 4
    assert_close(
        [row["loss"] for row in resumed.history[-5:]], [row["loss"] for row in whole.history[-5:]], atol=1e-5, rtol=1e-5
    )


def test_training_learns(tmp_path: Path) -> None:
    """Linked nodes share their words, so their texts alone tell."""
    trainer = trainer_of(tmp_path, longest=0.25, epochs=25)
    model = trainer.model.model
    words = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:36].view(12, 3).tolist()
    data = TextAttributedData(text=[" ".join(f"w{i}" for i in some) for some in words + words])
    data.edge_index = torch.stack([torch.arange(12), torch.arange(12) + 12])
    trainer.sampler, trainer.links = model.sampler(data, 2), data.edge_index.repeat(1, 3)[:, :32]
    history = trainer.run()
    last = [row["loss"] for row in history[-8:]]
    assert sum(last) / len(last) < 0.5 * history[0]["loss"]


def test_a_link_never_sees_its_own_answer(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    for epoch in range(5):
        batch = trainer.batch(torch.arange(32), epoch)
        ends = torch.cat([batch.pair, batch.pair.flip(0)], dim=1)
        assert not (batch.centres.neighbor_nodes == ends[1][:, None]).any()
        assert torch.equal(batch.centres.node[: ends.size(1)], ends[0])


def test_filters_can_be_left_out() -> None:
    model = GraphFormers(tiny_encoder(), tiny_text_tokenizer()).eval()
    sampler = model.sampler(TRAIN, 3)
    pair = torch.tensor([[0, 0, 3], [1, 2, 3]])
    batch = LinkBatch(sampler(pair.flatten()), pair)
    plain, filtered = (LinkObjective(model, filters=filters)(batch) for filters in (False, True))
    query, key = model(batch.centres).chunk(2)
    assert_close(plain, nn.functional.cross_entropy(query @ key.T, torch.arange(3)))
    assert plain != filtered


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert"])
def test_autocast(family: str) -> None:
    model = GraphFormers(tiny_encoder(family, torch.float32, initializer_range=0.1), tiny_text_tokenizer()).eval()
    pair = TRAIN.edge_label_index[:, :8]
    batch = LinkBatch(model.sampler(TRAIN, 3)(pair.flatten(), pair.flip(0).flatten()), pair)
    exact, rounded = (LinkObjective(model, temperature=4.0, autocast=dtype)(batch) for dtype in (None, torch.bfloat16))
    assert rounded.dtype == torch.float32
    assert exact != rounded
    assert_close(rounded, exact, atol=0.05, rtol=0.05)
    rounded.backward()


def ranks_written_out(
    model: GraphFormers, sampler: NeighborTextSampler, links: Tensor, candidates: Tensor
) -> list[int]:
    ranks = []
    for query, key, others in zip(*links.tolist(), candidates.tolist(), strict=True):
        q, k, *rest = model(sampler(torch.tensor([query, key, *(v for v in others if v >= 0)])))
        ranks.append(1 + sum(bool(q @ v >= q @ k) for v in rest))
    return ranks


def test_ranks_of_links() -> None:
    model = GraphFormers(tiny_encoder(), tiny_text_tokenizer()).eval()
    sampler = model.sampler(TRAIN, 3)
    links = VAL.edge_label_index
    candidates = in_batch_candidates(links, KnownLinks(DATA.edge_index, 24))
    assert candidates.diagonal().tolist() == [-1] * 6
    with torch.no_grad():
        expected = ranks_written_out(model, sampler, links, candidates)
    assert link_ranks(model, sampler, links, candidates).tolist() == expected
    assert len(set(expected)) > 1


def test_a_copy_of_the_right_answer_counts_as_a_tie() -> None:
    data = TextAttributedData(
        text=[f"text {i % 20}" for i in range(40)], edge_index=torch.empty(2, 0, dtype=torch.long)
    )
    model = GraphFormers(tiny_encoder(), tiny_text_tokenizer()).eval()
    place = torch.arange(20)
    ranks = link_ranks(model, model.sampler(data, 1), torch.stack([place.roll(1), place]), (place + 20)[:, None])
    assert ranks.tolist() == [2] * 20

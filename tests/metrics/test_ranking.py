import math

import pytest
import torch

from pyg_textgraph.metrics import auc, positive_ranks, ranking_metrics, sample_candidates

NEGATIVE = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.9, 0.5], [0.5, 0.5, 0.5], [-math.inf, 0.1, -math.inf]])
POSITIVE = torch.tensor([0.4, 0.5, 0.5, 0.1])


def test_ties_count_against_us() -> None:
    assert positive_ranks(POSITIVE, NEGATIVE).tolist() == [1, 4, 4, 2]


def test_nan_never_wins() -> None:
    nan = torch.tensor([math.nan])
    assert positive_ranks(nan, torch.tensor([[0.0, 1.0]])).tolist() == [3]
    assert positive_ranks(torch.tensor([1.0]), torch.tensor([[math.nan, 0.0]])).tolist() == [2]


def test_values_by_hand() -> None:
    values = ranking_metrics(torch.tensor([1, 4, 4, 2]))
    assert values["p@1"] == 0.25
    assert values["mrr"] == pytest.approx((1 + 0.25 + 0.25 + 0.5) / 4)
    assert values["ndcg"] == pytest.approx((1 + 2 / math.log2(5) + 1 / math.log2(3)) / 4)
    with pytest.raises(ValueError, match="empty"):
        ranking_metrics(torch.tensor([], dtype=torch.long))


def test_auc_by_hand() -> None:
    assert auc(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0, 0.0])) == pytest.approx((3 + 1) / 6)
    assert auc(torch.ones(4), torch.ones(5)) == 0
    assert auc(torch.ones(4), torch.zeros(5)) == 1
    with pytest.raises(ValueError, match="NaN"):
        auc(torch.tensor([math.nan]), torch.ones(1))
    with pytest.raises(ValueError, match="at least one"):
        auc(torch.ones(0), torch.ones(1))


@pytest.mark.parametrize("num_nodes", [30, 400])
def test_candidates_are_wrong_answers(num_nodes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    known = torch.randint(num_nodes, (2, 5 * num_nodes), generator=generator)
    links = known[:, :50]
    size = num_nodes // 4
    found = sample_candidates(links, num_nodes, size, known=known, seed=1)
    assert found.shape == (50, size)
    pairs = {(u, v) for u, v in known.T.tolist()} | {(v, u) for u, v in known.T.tolist()}
    for query, row in zip(links[0].tolist(), found.tolist(), strict=True):
        assert len(set(row)) == size
        assert query not in row
        assert not any((query, v) in pairs for v in row)
    assert torch.equal(found, sample_candidates(links, num_nodes, size, known=known, seed=1))


def test_candidates_are_uniform() -> None:
    links = torch.tensor([[2] * 3000, [5] * 3000])
    found = sample_candidates(links, 10, 4)
    share = torch.bincount(found.flatten(), minlength=10) / 3000
    assert share[[2, 5]].tolist() == [0, 0]
    assert (share[[0, 1, 3, 4, 6, 7, 8, 9]] - 0.5).abs().max() < 0.04


def test_too_few_wrong_answers() -> None:
    with pytest.raises(ValueError, match="node 0 has 1 wrong answers"):
        sample_candidates(torch.tensor([[0], [1]]), 3, 2)

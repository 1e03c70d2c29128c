"""The same values as our functions, batch by batch and process by process."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassF1Score
from torchmetrics.retrieval import RetrievalMRR, RetrievalNormalizedDCG, RetrievalPrecision

from pyg_textgraph.metrics import exact_match, macro_f1, positive_ranks, ranking_metrics
from pyg_textgraph.metrics.torchmetrics import CandidateRanking, TextExactMatch, TextMacroF1

CLASSES = ["cat", "dog", "cow", "owl"]
TRUTHS = ["cat", "dog", "dog", "cow", "cat", "dog", "cow"]
ANSWERS = ["cat", " dog ", "cow", None, "a cat", "Dog", "cow"]


def scores(num_queries: int, ties: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    both = torch.randn(num_queries, 9, generator=generator)
    if ties:
        both = both.round()
        both[0, 3], both[1, 4:6] = torch.nan, -torch.inf
    return both[:, 0], both[:, 1:]


def in_parts(metric: Metric, sizes: Sequence[int], *inputs: Any) -> Any:
    start = 0
    for size in sizes:
        metric.update(*(x[start : start + size] for x in inputs))
        start += size
    return metric.compute()


@pytest.mark.parametrize("ignore_case", [False, True])
def test_exact_match(ignore_case: bool) -> None:
    found = in_parts(TextExactMatch(ignore_case), (3, 1, 3), ANSWERS, TRUTHS)
    assert float(found) == pytest.approx(exact_match(ANSWERS, TRUTHS, ignore_case=ignore_case))
    assert float(found) == pytest.approx((4 if ignore_case else 3) / 7)


def test_macro_f1_of_texts() -> None:
    found = in_parts(TextMacroF1(CLASSES), (3, 1, 3), ANSWERS, TRUTHS)
    assert float(found) == pytest.approx(macro_f1([a or "" for a in ANSWERS], TRUTHS, CLASSES))


def test_macro_f1_of_classes_is_that_of_torchmetrics() -> None:
    """A class that is neither there nor answered is left out of the mean by both."""
    generator = torch.Generator().manual_seed(1)
    answers, truths = torch.randint(4, (2, 30), generator=generator)
    expected = float(MulticlassF1Score(num_classes=5, average="macro")(answers, truths))
    found = in_parts(TextMacroF1(range(5)), (10, 20), answers.tolist(), truths.tolist())
    assert float(found) == pytest.approx(expected)
    assert macro_f1(answers.tolist(), truths.tolist(), range(5)) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_ranking(ties: bool) -> None:
    positive, negative = scores(20, ties)
    found = in_parts(CandidateRanking(), (8, 12), positive, negative)
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        ranking_metrics(positive_ranks(positive, negative))
    )


def test_ranking_of_positive_scores_without_ties_is_that_of_torchmetrics() -> None:
    positive, negative = (x.sigmoid() for x in scores(20, ties=False))  # its MRR takes scores up to 0 for irrelevant
    both = torch.cat([positive[:, None], negative], 1)
    query = torch.arange(20)[:, None].expand_as(both)
    relevant = torch.zeros_like(both, dtype=torch.bool)
    relevant[:, 0] = True
    metrics = {"mrr": RetrievalMRR(), "ndcg": RetrievalNormalizedDCG(), "p@1": RetrievalPrecision(top_k=1)}
    theirs = MetricCollection(metrics)
    theirs.update(both.flatten(), relevant.flatten(), indexes=query.flatten())
    found = CandidateRanking()(positive, negative)
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: float(value) for name, value in theirs.compute().items()}
    )


def test_a_model_that_scores_all_alike_gets_no_credit() -> None:
    assert float(CandidateRanking()(torch.zeros(5), torch.zeros(5, 9))["p@1"]) == 0


def test_two_processes_add_up() -> None:
    positive, negative = scores(7, ties=True)
    made: list[tuple[Callable[[], Metric], list[Any]]] = [
        (TextExactMatch, [ANSWERS, TRUTHS]),
        (lambda: TextMacroF1(CLASSES), [ANSWERS, TRUTHS]),
        (CandidateRanking, [positive, negative]),
    ]
    for make, inputs in made:
        whole, first, second = make(), make(), make()
        whole.update(*inputs)
        first.update(*(x[:3] for x in inputs))
        second.update(*(x[3:] for x in inputs))
        first.merge_state(second)
        torch.testing.assert_close(first.compute(), whole.compute())


def test_is_reset_and_moves_on() -> None:
    metric = TextMacroF1(CLASSES)
    first = metric(["cat"], ["cat"])
    metric.reset()
    assert float(metric(["cat"], ["dog"])) == 0
    assert float(first) == 1


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="TextMacroF1: 'classes' holds 'a' more than once"):
        TextMacroF1(["a", "a"])
    with pytest.raises(ValueError, match="TextMacroF1: 'truths' holds 'b', which is none of the classes"):
        TextMacroF1(["a"]).update(["a"], ["b"])
    with pytest.raises(ValueError, match="TextExactMatch: 1 answers and 2 truths"):
        TextExactMatch().update(["a"], ["b", "c"])


def test_without_torchmetrics_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "pyg_textgraph.metrics.torchmetrics")
    with pytest.raises(ImportError, match=r"pip install 'pyg-textgraph\[torchmetrics\]'"):
        importlib.import_module("pyg_textgraph.metrics.torchmetrics")


def test_cases_are_told_apart_in_a_collection() -> None:
    both = MetricCollection({"exact": TextExactMatch(), "any case": TextExactMatch(ignore_case=True)})
    both.update(["no", "no"], ["Yes", "Yes"])  # both are wrong: their states look the same
    both.update(["yes", "yes"], ["Yes", "Yes"])
    assert {name: float(value) for name, value in both.compute().items()} == {"exact": 0.0, "any case": 0.5}


def test_other_classes_are_another_metric_in_a_collection() -> None:
    both = MetricCollection({"z": TextMacroF1(["x", "y", "z"]), "w": TextMacroF1(["x", "y", "w"])})
    alone = TextMacroF1(["x", "y", "w"])
    for batch in ((["x", "y"], ["x", "y"]), (["w", "y"], ["x", "y"])):
        both.update(*batch)
        alone.update(*batch)
    assert both.compute()["w"] == alone.compute()
    assert both.compute()["z"] > both.compute()["w"]

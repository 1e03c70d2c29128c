import random

import pytest

from pyg_textgraph.metrics import exact_match, macro_f1


def test_exact_match_counts_whole_answers() -> None:
    assert exact_match([" 4", "4, 5", "Yes", "4"], ["4", "4, 6", "yes", "4 "]) == 0.5
    assert exact_match(["Yes"], ["yes"], ignore_case=True) == 1.0
    assert exact_match([None, "None"], ["None", "None"]) == 0.5


def test_macro_f1_by_hand() -> None:
    truths = ["a", "a", "a", "b", "b", "c"]
    answers = ["a", "a", "b", "b", "c", "c"]
    # a: 2 of 2 answers, 2 of 3 examples; b: 1 of 2, 1 of 2; c: 1 of 2, 1 of 1
    assert macro_f1(answers, truths, "abc") == pytest.approx((4 / 5 + 2 / 4 + 2 / 3) / 3)


def test_an_answer_outside_the_classes_hurts_its_true_class_only() -> None:
    truths = ["a", "a", "b"]
    # a: 1 right, 1 missed; b: right
    assert macro_f1(["a", "something else", "b"], truths, "ab") == pytest.approx((2 / 3 + 1) / 2)
    # answering b instead is a false positive of b
    assert macro_f1(["a", "b", "b"], truths, "ab") == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_a_class_without_examples_counts_once_it_is_answered() -> None:
    assert macro_f1([0, 1], [0, 1], [0, 1, 2]) == 1.0
    assert macro_f1([0, 2], [0, 0], [0, 1, 2]) == pytest.approx((2 / 3 + 0) / 2)


def test_as_scikit_learn() -> None:
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    draw = random.Random(0)
    for _ in range(20):
        truths = [draw.randrange(5) for _ in range(30)]
        answers = [t if draw.random() < 0.5 else draw.randrange(5) for t in truths]
        assert macro_f1(answers, truths, range(7)) == pytest.approx(f1_score(truths, answers, average="macro"))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="exact_match: 1 answers and 2 truths"):
        exact_match(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="macro_f1: 0 answers"):
        macro_f1([], [], "ab")
    with pytest.raises(ValueError, match="'classes' holds 'a' more than once"):
        macro_f1(["a"], ["a"], "aba")
    with pytest.raises(ValueError, match="'truths' holds 'c'"):
        macro_f1(["a"], ["c"], "ab")

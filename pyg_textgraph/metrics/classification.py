"""Scores of answers that are written out, and may name no class at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def exact_match(answers: Sequence[str | None], truths: Sequence[str], *, ignore_case: bool = False) -> float:
    """The share of answers that equal the truth, space around either not counted.

    It is meant for generated texts. Whether every token would be right *given the true tokens before it* is another,
    easier question.

    Args:
        answers: What was generated; None for a text that did not come to an end, which is wrong.
        truths: What should have been, as many.
        ignore_case: Whether ``"Yes"`` is ``"yes"``.

    Raises:
        ValueError: If there are no answers, or not as many as truths.
    """
    check_answers("exact_match", answers, truths)
    return sum(same_text(a, t, ignore_case) for a, t in zip(answers, truths, strict=True)) / len(truths)


def macro_f1(answers: Sequence[str | int], truths: Sequence[str | int], classes: Sequence[str | int]) -> float:
    r"""The mean over classes of :math:`F_1 = 2\,\mathrm{TP} / (2\,\mathrm{TP} + \mathrm{FP} + \mathrm{FN})`.

    An answer that is none of the classes is wrong for its true class and a false positive of none. A class without
    examples has :math:`F_1 = 0` if it was answered somewhere; if not, it has none and is left out of the mean.

    Args:
        answers: One class per example, as a name or a number, or any other text.
        truths: The true classes.
        classes: All classes there are, each once.

    Raises:
        ValueError: If there are no answers or not as many as truths, if a class is there twice, or if a truth is no
            class.
    """
    check_answers("macro_f1", answers, truths)
    check_classes("macro_f1", classes, truths)
    answered, true = Counter(answers), Counter(truths)
    right = Counter(t for a, t in zip(answers, truths, strict=True) if a == t)
    # 2 TP + FP + FN is the number of answers and examples of a class
    scores = [2 * right[c] / (answered[c] + true[c]) for c in classes if answered[c] + true[c]]
    return sum(scores) / len(scores)


def same_text(answer: str | None, truth: str, ignore_case: bool = False) -> bool:
    """Whether an answer came to an end and equals the truth, space around either not counted."""
    if answer is None:
        return False
    answer, truth = answer.strip(), truth.strip()
    return answer.casefold() == truth.casefold() if ignore_case else answer == truth


def check_answers(name: str, answers: Sequence[object], truths: Sequence[object]) -> None:
    if len(answers) != len(truths) or not truths:
        raise ValueError(f"{name}: {len(answers)} answers and {len(truths)} truths, expected as many, at least one")


def check_classes(name: str, classes: Sequence[str | int], truths: Sequence[str | int] = ()) -> None:
    if len(set(classes)) != len(classes):
        twice = next(c for c, count in Counter(classes).items() if count > 1)
        raise ValueError(f"{name}: 'classes' holds {twice!r} more than once")
    if strange := set(truths) - set(classes):
        raise ValueError(f"{name}: 'truths' holds {sorted(map(repr, strange))[0]}, which is none of the classes")

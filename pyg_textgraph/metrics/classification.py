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
    _check("exact_match", answers, truths)
    pairs = zip(answers, truths, strict=True)
    return sum(a is not None and _plain(a, ignore_case) == _plain(t, ignore_case) for a, t in pairs) / len(truths)


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
    _check("macro_f1", answers, truths)
    if len(set(classes)) != len(classes):
        twice = next(name for name, count in Counter(classes).items() if count > 1)
        raise ValueError(f"macro_f1: 'classes' holds {twice!r} more than once")
    if strange := set(truths) - set(classes):
        raise ValueError(f"macro_f1: 'truths' holds {sorted(map(repr, strange))[0]}, which is none of the classes")
    answered, true = Counter(answers), Counter(truths)
    right = Counter(t for a, t in zip(answers, truths, strict=True) if a == t)
    # 2 TP + FP + FN is the number of answers and examples of a class
    scores = [2 * right[c] / (answered[c] + true[c]) for c in classes if answered[c] + true[c]]
    return sum(scores) / len(scores)


def _plain(text: str, ignore_case: bool) -> str:
    return text.strip().casefold() if ignore_case else text.strip()


def _check(name: str, answers: Sequence[object], truths: Sequence[object]) -> None:
    if len(answers) != len(truths) or not truths:
        raise ValueError(f"{name}: {len(answers)} answers and {len(truths)} truths, expected as many, at least one")

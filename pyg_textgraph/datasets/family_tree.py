"""Questions about relatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyg_textgraph.datasets._names import CITIES, COLOURS, FOODS, MEN, WOMEN
from pyg_textgraph.datasets.question_graphs import Form, GraphQuestion, QuestionGraphs, Split, draw_split

SPOUSE, CHILD = "SPOUSE", "CHILD"
FAVOURITES = {"colour": COLOURS, "food": FOODS, "city": CITIES}
RANKS = ("oldest", "second oldest", "third oldest", "fourth oldest")
TRIES = 400


@dataclass(eq=False)
class Person:
    name: str
    female: bool
    born: int
    favourite: dict[str, str]
    spouse: Person | None = None
    parents: list[Person] = field(default_factory=list)
    children: list[Person] = field(default_factory=list)

    @property
    def text(self) -> str:
        about = ", ".join([self.name, "female" if self.female else "male", f"born {self.born}"])
        return "; ".join([about, *(f"favourite {thing}: {value}" for thing, value in self.favourite.items())])


def _siblings(person: Person) -> list[Person]:
    return [other for parent in person.parents[:1] for other in parent.children if other is not person]


def _of(people: Iterable[Person], relation: Callable[[Person], list[Person]]) -> list[Person]:
    return [other for person in people for other in relation(person)]


def _children(person: Person) -> list[Person]:
    return person.children


def _parents(person: Person) -> list[Person]:
    return person.parents


# any, female, male; and who they are
RELATIONS: list[tuple[tuple[str, str, str], Callable[[Person], list[Person]]]] = [
    (("spouse", "wife", "husband"), lambda p: [p.spouse] if p.spouse else []),
    (("child", "daughter", "son"), _children),
    (("parent", "mother", "father"), _parents),
    (("sibling", "sister", "brother"), _siblings),
    (("grandchild", "granddaughter", "grandson"), lambda p: _of(p.children, _children)),
    (("grandparent", "grandmother", "grandfather"), lambda p: _of(p.parents, _parents)),
    (("parent's sibling", "aunt", "uncle"), lambda p: _of(p.parents, _siblings)),
    (("sibling's child", "niece", "nephew"), lambda p: _of(_siblings(p), _children)),
    (("cousin", "female cousin", "male cousin"), lambda p: _of(_of(p.parents, _siblings), _children)),
]


class FamilyTree(QuestionGraphs):
    """Three generations of a family, and a question like "What is the favourite city of X's second oldest grandson?".

    A person's text is the name, which is unique, gender, year of birth and three favourite things. SPOUSE edges go both
    ways, CHILD edges from both parents to the child. Aunts, uncles, nieces and nephews are those by blood. A question
    names its relative so that there is one only, and siblings' years of birth differ.

    Args:
        split: Train, validation or test.
        form: See :class:`QuestionGraphs`; edge nodes carry the relations' names.
        sizes: Graphs per split; one question each.
        seed: Of everything.
        transform: Applied at every access.
    """

    def __init__(
        self,
        split: Split = "train",
        form: Form = "incidence",
        *,
        sizes: Sequence[int] = (3500, 200, 1000),
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(draw_split(_draw, "FamilyTree", split, sizes, seed), form, None, transform)


class Names:
    """People with names that nobody in the family has yet."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.women, self.men = (iter(rng.permutation(names).tolist()) for names in (WOMEN, MEN))

    def person(self, born: int, female: bool | None = None) -> Person:
        female = bool(self.rng.integers(2)) if female is None else female
        favourite = {thing: values[int(self.rng.integers(len(values)))] for thing, values in FAVOURITES.items()}
        return Person(next(self.women if female else self.men), female, born, favourite)


def family(rng: np.random.Generator) -> list[Person]:
    """A couple, two to four children, most of them married, and one to three children of each marriage."""
    names = Names(rng)
    people: list[Person] = []

    def marry(person: Person) -> None:
        person.spouse = names.person(person.born + int(rng.integers(-5, 6)), not person.female)
        person.spouse.spouse = person
        people.append(person.spouse)

    def beget(person: Person, count: int) -> None:
        assert person.spouse is not None
        mother = person if person.female else person.spouse
        for years in sorted(rng.choice(np.arange(19, 41), count, replace=False).tolist()):
            child = names.person(mother.born + years)
            child.parents = [person, person.spouse]
            for parent in child.parents:
                parent.children.append(child)
            people.append(child)

    first = names.person(int(rng.integers(1915, 1941)))
    people.append(first)
    marry(first)
    beget(first, int(rng.integers(2, 5)))
    for child in list(first.children):
        if rng.random() < 0.75:
            marry(child)
            beget(child, int(rng.integers(1, 4)))
    return [people[i] for i in rng.permutation(len(people))]


def ask(people: list[Person], rng: np.random.Generator) -> tuple[Person, str, str, str] | None:
    """Someone, a question about a relative of theirs that has one answer, the answer, and the relation."""
    for _ in range(TRIES):
        someone = people[int(rng.integers(len(people)))]
        words, relatives_of = RELATIONS[int(rng.integers(len(RELATIONS)))]
        which = int(rng.integers(3))
        relatives = [p for p in relatives_of(someone) if which == 0 or p.female == (which == 1)]
        years = [relative.born for relative in relatives]
        if not relatives or len(set(years)) < len(years):
            continue
        relatives.sort(key=lambda p: p.born)
        ranks = [*enumerate(RANKS[: len(relatives)]), (len(relatives) - 1, "youngest")]
        place, rank = ranks[int(rng.integers(len(ranks)))] if len(relatives) > 1 else (0, "")
        thing = list(FAVOURITES)[int(rng.integers(len(FAVOURITES)))]
        relation = f"{rank} {words[which]}".strip()
        question = f"What is the favourite {thing} of {someone.name}'s {relation}?"
        return someone, question, relatives[place].favourite[thing], words[which]
    return None


def _draw(rng: np.random.Generator, number: int) -> list[GraphQuestion] | None:
    people = family(rng)
    asked = ask(people, rng)
    if asked is None:
        return None
    someone, question, answer, relation = asked
    place = {person.name: i for i, person in enumerate(people)}
    edges = [(place[p.name], place[p.spouse.name], SPOUSE) for p in people if p.spouse]
    edges += [(place[p.name], place[child.name], CHILD) for p in people for child in p.children]
    return [
        GraphQuestion(
            text=tuple(person.text for person in people),
            edges=tuple((u, v) for u, v, _ in edges),
            question=question,
            answer=answer,
            mentions=(place[someone.name],),
            relations=tuple(name for _, _, name in edges),
            kind=relation,
        )
    ]

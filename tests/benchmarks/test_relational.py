"""The worked relational task: what a doctor's row hides, and what the rows around it tell."""

import re
from collections import Counter

import pytest
import torch

from benchmarks.relational.hospital import DEPARTMENTS, KEYS, hospital
from benchmarks.relational.run import load
from pyg_textgraph.data import TextAttributedData
from pyg_textgraph.datasets import from_tables
from pyg_textgraph.transforms import EgoTextSampler


@pytest.fixture(scope="module")
def data() -> TextAttributedData:
    return load()


def test_tables_and_graph(data: TextAttributedData) -> None:
    tables = hospital()
    sizes = [len(table["id"]) for table in tables.values()]
    assert torch.bincount(data.table).tolist() == sizes
    assert data.num_edges == 2 * len(tables["visits"]["id"]) + len(tables["prescriptions"]["id"])
    assert Counter(data.text_edges)["treated by"] == len(tables["visits"]["id"])
    assert (data.y >= 0).equal(data.table == 0)
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [360, 120, 120]
    share = data.y[:600].bincount() / 600
    assert ((share > 0.15) & (share < 0.25)).all()


def test_no_text_gives_the_department_away(data: TextAttributedData) -> None:
    words = set(re.findall(r"\w+", " ".join(data.text).lower()))
    assert not words & set(DEPARTMENTS)
    # other departments, same texts and edges
    tables = hospital()
    shuffled = tables | {"doctors": tables["doctors"] | {"department": tables["doctors"]["department"][::-1]}}
    other = from_tables(shuffled, KEYS, label="doctors.department")
    plain = from_tables(tables, KEYS, label="doctors.department")
    assert other.text == plain.text
    assert other.edge_index.equal(plain.edge_index)
    with pytest.raises(ValueError, match="has the label 'department' in it"):
        from_tables(tables, KEYS, label="doctors.department", text={"doctors": "{name}, {department}"})


def test_a_doctor_s_own_row_says_nothing_and_the_surroundings_nearly_all(data: TextAttributedData) -> None:
    """Word counts, without any model: how often does the department with most typical words win?"""
    typical = {name: [*notes, *drugs] for name, (notes, drugs) in DEPARTMENTS.items()}
    egos = EgoTextSampler(16)
    right = {"own": 0, "around": 0}
    doctors = data.test_mask.nonzero().view(-1).tolist()
    for doctor in doctors:
        data.target = doctor
        ego = egos(data)
        for kind, texts in (("own", ego.text[:1]), ("around", ego.text[1:])):
            score = [sum(words in text for text in texts for words in typical[name]) for name in data.class_names]
            right[kind] += max(score) > 0 and score.index(max(score)) == int(data.y[doctor])
    del data.target
    assert right["own"] == 0
    assert right["around"] > 0.9 * len(doctors)


def test_two_seeds_differ_and_one_is_reproducible() -> None:
    assert hospital(50, seed=1) == hospital(50, seed=1)
    assert hospital(50, seed=1) != hospital(50, seed=2)

"""A database as a text graph: rows, foreign keys, and a label that no text gives away."""

from typing import Any

import pandas as pd
import pytest
import torch

from pyg_textgraph.datasets import from_tables

TABLES: dict[str, dict[str, list[Any]]] = {
    "wards": {"code": ["A", "B"], "name": ["north", "south"]},
    "patients": {"id": [7, 8, 9], "name": ["Ann", "Bob", "Cyd"], "born": [1950, None, 1990]},
    "visits": {
        "id": [1, 2, 3, 4],
        "patient": [8, 8, 7, None],
        "ward": ["B", "A", "A", "B"],
        "note": ["cough", "fall", None, "rash"],
        "urgent": ["yes", "no", None, "yes"],
        "part": ["train", "test", "train", "val"],
    },
}
KEYS = {"visits.patient": "patients.id", "visits.ward": "wards.code"}


def tables(**changes: Any) -> dict[str, dict[str, list[Any]]]:
    return TABLES | {"visits": TABLES["visits"] | changes}


def test_rows_and_keys() -> None:
    data = from_tables(
        {name: pd.DataFrame(table) for name, table in TABLES.items()}, KEYS, label="visits.urgent", split="visits.part"
    )
    assert data.table.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.edge_index.tolist() == [[5, 6, 7, 5, 6, 7, 8], [3, 3, 2, 1, 0, 0, 1]]
    assert data.text_edges == ["patient"] * 3 + ["ward"] * 4  # the visit without a patient has no edge to one
    assert (data.y.tolist(), data.class_names) == ([-1] * 5 + [1, 0, -1, 1], ["no", "yes"])
    # a row without a label is in no mask
    assert [data[f"{part}_mask"].nonzero().view(-1).tolist() for part in ("train", "val", "test")] == [[5], [8], [6]]
    assert data.validate()


def test_texts() -> None:
    data = from_tables(TABLES, KEYS, label="visits.urgent", split="visits.part")
    assert data.text[0] == "wards: name: north"
    assert data.text[2:4] == ["patients:\nname: Ann\nborn: 1950", "patients: name: Bob"]
    assert data.text[5:] == [
        "visits:\nid: 1\nnote: cough",
        "visits:\nid: 2\nnote: fall",
        "visits: id: 3",
        "visits:\nid: 4\nnote: rash",
    ]
    text = {"patients": "{name}, born {born}", "wards": ["code", "name"], "visits": "note"}
    data = from_tables(TABLES, KEYS, text=text, relations={"visits.ward": "took place in"})
    assert data.text[5:] == ["visits: cough", "visits: fall", "visits:", "visits: rash"]
    assert data.text[:3] == ["wards:\ncode: A\nname: north", "wards:\ncode: B\nname: south", "patients: Ann, born 1950"]
    assert data.text_edges[-1] == "took place in"
    assert "y" not in data


def test_the_label_is_in_no_text() -> None:
    """Whatever the labels are, texts and edges are the same."""
    one = from_tables(TABLES, KEYS, label="visits.urgent")
    other = from_tables(tables(urgent=["no", "yes", "no", "no"]), KEYS, label="visits.urgent")
    assert one.text == other.text
    assert one.edge_index.equal(other.edge_index)
    assert not one.y.equal(other.y)
    with pytest.raises(ValueError, match="the text of 'visits' has the label 'urgent' in it"):
        from_tables(TABLES, KEYS, label="visits.urgent", text={"visits": ["note", "urgent"]})


def test_errors() -> None:
    with pytest.raises(
        ValueError, match=r"in 2 of 4 rows of 'visits', 'patient' is not in patients.id; first row 2, 1"
    ):
        from_tables(tables(patient=[8, None, 1, 2]), KEYS)
    doubled = TABLES | {"wards": {"code": ["A", "A"], "name": ["x", "y"]}}
    with pytest.raises(ValueError, match="in 1 of 2 rows of 'wards', 'code' is there already; first row 1, 'A'"):
        from_tables(doubled, KEYS)
    for keys, match in (
        ({"visits.doctor": "patients.id"}, "the table 'visits' has no column 'doctor', only id, patient"),
        (
            {"visit.patient": "patients.id"},
            "'visit.patient' is no table.column; the tables are wards, patients, visits",
        ),
        ({"visits.patient": "patients"}, "'patients' is no table.column"),
    ):
        with pytest.raises(ValueError, match=match):
            from_tables(TABLES, keys)
    with pytest.raises(ValueError, match="'text' names 'doctors', expected one of wards, patients, visits"):
        from_tables(TABLES, KEYS, text={"doctors": "name"})
    with pytest.raises(ValueError, match=r"'split' is 'wards.name', expected a column of the table of 'label'"):
        from_tables(TABLES, KEYS, label="visits.urgent", split="wards.name")
    with pytest.raises(ValueError, match="'tables' is empty"):
        from_tables({}, {})


def test_no_keys_and_empty_tables() -> None:
    data = from_tables({"a": {"x": []}, "b": {"x": [1]}}, {})
    assert (data.num_nodes, data.edge_index.shape, data.text) == (1, torch.Size([2, 0]), ["b: x: 1"])


def test_a_label_that_is_a_key_makes_no_edges() -> None:
    visits = {"id": [0, 1], "note": ["cough", "pain"], "department": [10, 11], "doctor": [10, 10]}
    departments = {"id": [10, 11], "name": ["lung", "heart"]}
    keys = {"visits.department": "departments.id", "visits.doctor": "departments.id"}
    data = from_tables({"visits": visits, "departments": departments}, keys, label="visits.department")
    assert data.edge_index.tolist() == [[0, 1], [2, 2]]
    assert data.text_edges == ["doctor", "doctor"]
    assert data.y.tolist() == [0, 1, -1, -1]

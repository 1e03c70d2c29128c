"""A small hospital's database, made up: who treats whom, and in which department a doctor works."""

from __future__ import annotations

import random
from typing import Any

Rows = dict[str, dict[str, list[Any]]]
KEYS = {
    "visits.doctor": "doctors.id",
    "visits.patient": "patients.id",
    "prescriptions.visit": "visits.id",
}
RELATIONS = {"visits.doctor": "treated by", "visits.patient": "visit of", "prescriptions.visit": "prescribed at"}
TEXT = {
    "doctors": "Dr {name}, {years} years in the hospital, plays {hobby}",
    "patients": "{name}, born {born}",
    "visits": "{note}",
    "prescriptions": "{drug}, {days} days",
}
# what is written down in a department: complaints and drugs, none of which names it
DEPARTMENTS: dict[str, tuple[list[str], list[str]]] = {
    "heart": (["chest pain on the stairs", "irregular pulse", "swollen ankles", "high blood pressure"],
              ["bisoprolol", "ramipril", "aspirin"]),
    "skin": (["itching red patches", "a mole that has grown", "blisters on both hands", "acne on the back"],
             ["hydrocortisone cream", "isotretinoin", "zinc ointment"]),
    "eyes": (["blurred vision", "sees double when reading", "a red and watery gaze", "flashes of light at night"],
             ["timolol drops", "artificial tears", "atropine drops"]),
    "bones": (["fell on the wrist", "knee locks on the stairs", "lower back pain", "hip hurts at night"],
              ["ibuprofen", "calcium", "a plaster cast"]),
    "lungs": (["dry cough for six weeks", "wheezing after sport", "short of breath at rest", "coughs up phlegm"],
              ["salbutamol spray", "prednisolone", "budesonide spray"]),
}  # fmt: skip
EVERYWHERE = (
    ["routine check", "asks for a second opinion", "feels tired", "check after the last visit"],
    ["paracetamol"],
)
FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ines", "Jon", "Kim", "Leo", "Mia", "Noah")
LAST = ("Adler", "Brook", "Cole", "Duran", "Engel", "Fox", "Grant", "Hale", "Ito", "Jensen", "Klein", "Lopez", "Mori")
HOBBIES = ("chess", "the violin", "tennis", "football", "cards", "the piano", "table tennis")


def hospital(num_doctors: int = 600, visits_each: int = 5, telling: float = 0.6, seed: int = 0) -> Rows:
    """Tables of doctors, patients, visits and prescriptions.

    Args:
        num_doctors: Split 60/20/20 into train, val and test.
        visits_each: Visits per doctor.
        telling: Share of notes and drugs that are typical of the doctor's department; the others occur everywhere.
        seed: Of everything.
    """
    draw = random.Random(seed)

    def name() -> str:
        return f"{draw.choice(FIRST)} {draw.choice(LAST)}"

    doctors: dict[str, list[Any]] = {key: [] for key in ("id", "name", "years", "hobby", "department", "split")}
    patients: dict[str, list[Any]] = {key: [] for key in ("id", "name", "born")}
    visits: dict[str, list[Any]] = {key: [] for key in ("id", "doctor", "patient", "note")}
    prescriptions: dict[str, list[Any]] = {key: [] for key in ("id", "visit", "drug", "days")}

    def add(table: dict[str, list[Any]], *values: Any) -> None:
        for column, value in zip(table.values(), (len(table["id"]), *values), strict=True):
            column.append(value)

    for _ in range(num_doctors * visits_each // 3):
        add(patients, name(), draw.randint(1930, 2020))
    for doctor in range(num_doctors):
        department = draw.choice(list(DEPARTMENTS))
        place = doctor % 10
        split = "train" if place < 6 else "val" if place < 8 else "test"
        add(doctors, name(), draw.randint(1, 30), draw.choice(HOBBIES), department, split)
        for _ in range(visits_each):
            notes, drugs = DEPARTMENTS[department] if draw.random() < telling else EVERYWHERE
            add(visits, doctor, draw.randrange(len(patients["id"])), draw.choice(notes))
            if draw.random() < 0.7:
                add(prescriptions, len(visits["id"]) - 1, draw.choice(drugs), draw.randint(3, 30))
    return {"doctors": doctors, "patients": patients, "visits": visits, "prescriptions": prescriptions}

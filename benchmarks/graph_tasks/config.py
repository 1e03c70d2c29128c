"""What one row of a table is made of: one small JSON file each, under configs/."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

CONFIGS = Path(__file__).parent / "configs"
Method = Literal["gtlm", "serialized", "zero-shot"]


@dataclass(frozen=True)
class Config:
    """One run.

    Args:
        name: The file's name, and the row's.
        table: Which table the row belongs to.
        dataset: A class of :mod:`pyg_textgraph.datasets`.
        arguments: Its arguments, ``form`` included; a serialized graph is always read from the plain one.
        method: GTLM, the same language model on the graph written as text, or that one untrained.
        base: ``"smollm2"``, or a language model's name on the Hub.
        biases: Of GTLM.
        rank: Of the adapters; 0 trains the biases alone.
        steps: Optimizer steps.
        graphs_per_step: Graphs in each.
        accumulate: In how many parts.
        validations: How often the best parameters are chosen.
        validation_graphs, test_graphs: The first ones of those splits.
        lr, bias_lr: Highest rates.
        weight_decay: Of the adapters.
        dtype: Of the language model's weights.
        seed: Of data, order and dropout.
        paper: The published figure of GTLM on Llama-3.2-1B for the same row, in percent.
    """

    name: str
    table: str
    dataset: str
    arguments: dict[str, Any] = field(default_factory=dict)
    method: Method = "gtlm"
    base: str = "smollm2"
    biases: tuple[str, ...] = ("spd", "rrwp", "magnetic")
    rank: int = 16
    steps: int = 480
    graphs_per_step: int = 8
    accumulate: int = 1
    validations: int = 4
    validation_graphs: int = 100
    test_graphs: int = 500
    lr: float = 3e-4
    bias_lr: float = 5e-3
    weight_decay: float = 0.1
    dtype: str = "bfloat16"
    seed: int = 0
    paper: float | None = None

    @classmethod
    def load(cls, name: str) -> Self:
        """Reads ``configs/<name>.json``.

        Raises:
            ValueError: If there is no such file, or it has an unknown field.
        """
        path = CONFIGS / f"{name}.json"
        if not path.is_file():
            raise ValueError(f"there is no configuration {name!r}; there are: {', '.join(names())}")
        told = json.loads(path.read_text())
        if unknown := set(told) - {f.name for f in fields(cls)}:
            raise ValueError(f"{path.name}: unknown fields {sorted(unknown)}")
        return cls(**(told | {"name": name, "biases": tuple(told.get("biases", cls.biases))}))


def names() -> list[str]:
    """All configurations."""
    return sorted(path.stem for path in CONFIGS.glob("*.json"))

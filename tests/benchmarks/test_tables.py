"""Tables in READMEs are what the newest result files say."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import tables


def report(value: float, question: str = "speed") -> str:
    row = {"case": "c", "metric": "seconds", "value": value, "peer": "p", "peer_value": 2.0, "ratio": value / 2}
    versions = {"python": "3", "torch": "2", "transformers": "5"}
    told = {"question": question, "machine": "m", "date": "d", "command": "run", "versions": versions, "rows": [row]}
    return json.dumps(told)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    results = tmp_path / "benchmarks" / "speed" / "results"
    results.mkdir(parents=True)
    (results / "2026-01-01-a.json").write_text(report(1.0))
    (results / "2026-02-01-a.json").write_text(report(1.5))
    (results / "2026-03-01-a-chase.json").write_text(report(3.0, "speed chase"))
    monkeypatch.setattr(tables, "HERE", tmp_path / "benchmarks")
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    return tmp_path


def test_every_mark_gets_its_newest_file(folder: Path) -> None:
    marks = ("results", "results: chase", "results: nothing")
    page = folder / "benchmarks" / "speed" / "README.md"
    page.write_text("head\n" + "".join(f"<!-- {mark} -->\nold\n<!-- /results -->\nbetween\n" for mark in marks))
    front = folder / "README.md"
    front.write_text("<!-- results: speed/ -->\n<!-- /results -->")
    for _ in range(2):  # writing twice changes nothing
        tables.main()
        speed, chase, nothing, _ = page.read_text().split("between")
        assert "| c | 1.50 | p | 2.00 | **0.75** |" in speed
        assert "| c | 3.00 | p | 2.00 | **1.50** |" in chase
        assert "old" in nothing
        assert "old" not in speed + chase
        assert "| c | 1.50 |" in front.read_text()


def test_extra_columns() -> None:
    told = json.loads(report(1.0))
    extra = {"std": 0.01, "seeds": 10, "parameters": 12345678, "told_apart": True}
    told["rows"] = [{"case": "a", "metric": "m", "value": 0.5, **extra}, {"case": "b", "metric": "m", "value": 0.25}]
    head, _, first, second, *_ = tables.table(told).splitlines()
    assert head == "| case | m | std | seeds | parameters | told apart |"
    assert first == "| a | 0.5 | 0.01 | 10 | 12,345,678 | True |"
    assert second == "| b | 0.25 |  |  |  |  |"


def test_check_fails_on_an_old_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "README.md").write_text("<!-- results: speed/ -->\n<!-- /results -->")
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit, match=r"out of date, run `make tables`: README\.md"):
        tables.main()
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit) as end:
        tables.main()
    assert end.value.code == 0

"""What pages name exists, and what they show is there."""

import importlib
import re
from pathlib import Path

import pytest

from docs.figures import draw

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(p for p in (ROOT / "docs").rglob("*.md"))]
ROLE = re.compile(r"\{py:\w+\}`~?([\w.]+)`")


def find(name: str) -> object:
    """Imports the longest module in a dotted name and follows the rest."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} is no module")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_pages_exist(page: Path) -> None:
    for name in ROLE.findall(page.read_text()):
        assert find(name).__doc__, f"{name} has no docstring"


def test_the_table_of_formulas_names_each_function_once() -> None:
    names = ROLE.findall((ROOT / "docs" / "paper-to-code.md").read_text())
    assert len(names) > 40
    assert len(names) == len(set(names))
    with pytest.raises(AttributeError):
        find("pyg_textgraph.ops.no_such_operation")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_and_files_in_pages_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            beside = page.parent / target
            assert beside.exists() or beside.with_suffix(".ipynb").exists(), f"{target} is missing"


def test_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw.draw(tmp_path)
    assert {path.name for path in drawn} == {path.name for path in draw.HERE.glob("*.svg")}
    first = (tmp_path / "gtlm.svg").read_bytes()
    monkeypatch.setattr(draw, "FIGURES", {"gtlm": draw.gtlm})
    draw.draw(tmp_path)
    assert (tmp_path / "gtlm.svg").read_bytes() == first  # no dates, no random names


def test_files_named_in_contributing_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`((?:pyg_textgraph|tests|docs)/[\w/.]+\.py)`", page):
        if "resistance" not in path:
            assert (ROOT / path).is_file(), path
    for path in re.findall(r"`((?:nn|data|ops)/[\w/.]+\.py)`", page):
        assert (ROOT / "pyg_textgraph" / path).is_file(), path

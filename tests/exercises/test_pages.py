"""Every skeleton on a page fails its check, and the book's solution, pasted over it, passes.

The cells below a page's heading "Exercises" are run alone, in order, as a reader may. A cell with
a skeleton has the tag `exercise`: it defines a function and ends with `puzzles.NAME.check(...)`.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import pytest
import stored_results

from nkibook.exercises import Exercise, Verdict

ROOT = Path(__file__).resolve().parents[2]
PUZZLES = ROOT / "nkibook/exercises/puzzles"
PAGES = sorted(
    page
    for folder in ("notebooks", "book")
    for page in (ROOT / folder).glob("*.md")
    if (PUZZLES / f"{page.stem}.py").exists()
)

REFERENCE = {"api", "api_nki", "bibliography", "glossary", "setup"}  # tables, and how to install


class Cell:
    """A code cell of the section: its source and, with a skeleton, the exercise it is about."""

    def __init__(self, source: str, tags: list[str]) -> None:
        self.source = source
        self.exercise = _checked_name(source) if "exercise" in tags else None

    def function(self) -> tuple[int, int]:
        """First and last line of the skeleton, decorators included, from 1."""
        for node in ast.parse(self.source).body:
            if isinstance(node, ast.FunctionDef) and node.name == self.exercise:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return first, node.end_lineno
        raise AssertionError(f"no function {self.exercise} in\n{self.source}")

    def skeleton(self) -> str:
        first, last = self.function()
        return "\n".join(self.source.splitlines()[first - 1 : last])

    def solved(self, solution: str) -> str:
        """The cell with the solution pasted over its skeleton."""
        first, last = self.function()
        lines = self.source.splitlines()
        return "\n".join([*lines[: first - 1], *solution.splitlines(), *lines[last:]])


def _checked_name(source: str) -> str:
    found = re.findall(r"^puzzles\.(\w+)\.check\((\w+)\)$", source, re.MULTILINE)
    assert len(found) == 1, f"one `puzzles.NAME.check(NAME)` is wanted at the end of\n{source}"
    assert found[0][0] == found[0][1], source
    return found[0][0]


def section(page: Path) -> list[Cell]:
    """The code cells below the heading "Exercises", to the next heading of its level."""
    inside, cells = False, []
    for cell in jupytext.read(page, fmt="md:myst").cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^## .*$", cell.source, re.MULTILINE):
                inside = heading == "## Exercises"
        elif inside:
            cells.append(Cell(cell.source, cell.metadata.get("tags", [])))
    return cells


def run(source: str, names: dict[str, Any], file: str) -> Any:
    """Execute a cell; return the value of its last line, as a notebook shows it."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), file, "eval"), names)


def exercises(module: Any) -> set[str]:
    return {name for name, value in vars(module).items() if isinstance(value, Exercise)}


def puzzles(page: Path) -> Any:
    return importlib.import_module(f"nkibook.exercises.puzzles.{page.stem}")


def solutions(page: Path) -> Any:
    return importlib.import_module(f"nkibook.exercises.solutions.{page.stem}")


def source_of(solution: Any) -> str:
    return textwrap.dedent(inspect.getsource(getattr(solution, "func", solution))).rstrip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_device_is_kept_from_is_in_the_skeleton_and_not_in_the_solution(page: Path) -> None:
    for cell in section(page):
        breaks = cell.exercise and getattr(puzzles(page), cell.exercise).breaks
        if breaks:
            assert breaks in cell.source
            assert breaks not in source_of(getattr(solutions(page), cell.exercise))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_skeletons_fail_and_solutions_pass(page: Path) -> None:
    need = stored_results.stored_pages(ROOT).get(f"{page.parent.name}/{page.stem}")
    if need == stored_results.COMPILER:
        pytest.skip(f"needs: {need}")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(section(page)):
        file = f"<{page.stem}, exercise cell {number}>"
        found = run(cell.source, names, file)
        if cell.exercise is None:
            continue
        assert isinstance(found, Verdict)
        assert not found, f"the skeleton of {cell.exercise} passes"
        assert found.message
        assert found.picture is None or found.picture.alt
        answer = source_of(getattr(solutions(page), cell.exercise))
        verdict = run(cell.solved(answer), names, f"{file} solved")
        assert verdict, f"the solution of {cell.exercise}: {verdict}"
        # The stated number of lines is about what changes.
        lines = names["puzzles"].__dict__[cell.exercise].lines
        changed = difflib.ndiff(cell.skeleton().splitlines(), answer.splitlines())
        written = sum(line.startswith("+ ") for line in changed)
        assert written <= 2 * lines + 1, f"{cell.exercise} changes {written} lines"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_section_stands_on_its_own(page: Path, run_python: Callable[..., Any]) -> None:
    """Its imports and puzzles need nothing of the cells above, nor of this process, where
    tests/conftest.py has put the simulator in place."""
    cells = section(page)
    run_python("\n\n".join(c.skeleton() if c.exercise else c.source for c in cells))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_puzzles_and_solutions_have_the_same_names(page: Path) -> None:
    there = [cell.exercise for cell in section(page) if cell.exercise]
    assert len(there) == len(set(there))
    assert set(there) == exercises(puzzles(page))
    assert all(callable(getattr(solutions(page), name)) for name in there)
    text = page.read_text()
    shown = re.findall(rf"exercises/solutions/{page.stem}\.py\n:pyobject: (\w+)\n", text)
    assert sorted(shown) == sorted(there), "each solution is shown once, folded"
    assert 2 <= len(there) <= 5


def test_every_chapter_has_exercises() -> None:
    chapters = {path.stem for f in ("notebooks", "book") for path in (ROOT / f).glob("*.md")}
    assert chapters - REFERENCE == {page.stem for page in PAGES}


def test_there_are_bug_hunts() -> None:
    errors = set()
    hunts = 0
    for page in PAGES:
        text = page.read_text()
        hunts += len(re.findall(r"^### .*bug hunt.*$", text, re.MULTILINE))
        stored = page.with_suffix(".ipynb")
        if stored.exists():
            errors |= set(re.findall(r"Not yet: (\w+Error)", stored.read_text()))
    assert hunts >= 4
    # A race between programs, an uninitialised tile, a partition-axis reduction, a mask.
    assert errors >= {"RaceError", "UninitializedReadError", "ParameterError", "OutOfBoundsError"}

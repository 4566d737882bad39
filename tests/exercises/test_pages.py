"""Every skeleton on a page fails its check, and the book's solution, pasted over it, passes.

The cells below a page's heading "Exercises" are run alone, in order, as a reader may. A cell with
a skeleton has the tag `exercise`: it defines a function and ends with `puzzles.NAME.check(...)`.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
import linecache
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import needs
import pages
import pytest

import kernels
from nkibook.cells import dialect_of
from nkibook.exercises import Exercise, Verdict
from nkibook.exercises.running import framework_of

ROOT = Path(__file__).resolve().parents[2]
PUZZLES = ROOT / "nkibook/exercises/puzzles"
PAGES = sorted(
    path for path in map(pages.source, pages.in_order()) if (PUZZLES / f"{path.stem}.py").exists()
)

# A page in both dialects has a section for each.
SECTIONS = [
    pytest.param(page, dialect, id=f"{page.stem}-{dialect}")
    for page in PAGES
    for dialect in pages.dialects(pages.named(page))
]

NKI = re.compile(r"(nki|neuronxcc)\b")  # found only once kernels, nkibook or nkisim is imported
# Besides the pages of the API: tables, how to install, where to begin; and for instructors, whose
# students have the exercises.
REFERENCE = {
    "bibliography",
    "cheat_sheet",
    "glossary",
    "intro",
    "search",
    "setup",
    "teaching",
}

COLUMN = 77  # characters of code in a page on a desktop; a longer line begins again at the left


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


@functools.cache
def section(page: Path, dialect: str) -> list[Cell]:
    """The code cells below the heading "Exercises", to the next heading of its level, as a dialect
    runs them."""
    inside, cells = False, []
    for cell in jupytext.read(page, fmt="md:myst").cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^## .*$", cell.source, re.MULTILINE):
                inside = heading == "## Exercises"
        elif inside and dialect_of(cell.source) in (None, dialect):
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


def solution(page: Path, name: str, dialect: str) -> Any:
    """The answer in a dialect: its own, else the one that both share."""
    module = answers(page, dialect if name in own_answers(page, dialect) else "")
    return getattr(module, name)


def answers(page: Path, dialect: str = "") -> Any:
    """The module of the answers that a dialect has for itself, or that both share; None if none."""
    name = f"nkibook.exercises.solutions.{f'{dialect}.' if dialect else ''}{page.stem}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def own_answers(page: Path, dialect: str) -> set[str]:
    """The exercises of a page whose answer is the dialect's own."""
    return exercises(puzzles(page)) & set(vars(answers(page, dialect) or object))


def source_of(solution: Any) -> str:
    return textwrap.dedent(inspect.getsource(getattr(solution, "func", solution))).rstrip()


@pytest.mark.parametrize(("page", "dialect"), SECTIONS)
def test_what_a_device_is_kept_from_is_in_the_skeleton_and_not_in_the_solution(
    page: Path, dialect: str
) -> None:
    for cell in section(page, dialect):
        breaks = cell.exercise and getattr(puzzles(page), cell.exercise).breaks
        if breaks:
            answer = source_of(solution(page, cell.exercise, dialect))
            parts = (breaks,) if isinstance(breaks, str) else breaks
            assert any(part in cell.source for part in parts)
            assert not any(part in answer for part in parts)


@pytest.mark.parametrize(("page", "dialect"), SECTIONS)
def test_skeletons_fail_and_solutions_pass(
    page: Path, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "")  # so that what a cell sets is undone
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    if dialect == "nki":  # as a notebook is started for it
        monkeypatch.setattr(kernels, "dialect", dialect)
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    if needs.missing(pages.named(page), dialect) == needs.COMPILER:
        pytest.skip(f"needs: {needs.COMPILER}")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(section(page, dialect)):
        file = f"<{page.stem}, exercise cell {number}>"
        found = run(cell.source, names, file)
        if cell.exercise is None:
            continue
        assert isinstance(found, Verdict)
        assert not found, f"the skeleton of {cell.exercise} passes"
        assert found.message
        assert found.picture is None or found.picture.alt
        answer = source_of(solution(page, cell.exercise, dialect))
        verdict = run(cell.solved(answer), names, f"{file} solved")
        assert verdict, f"the solution of {cell.exercise}: {verdict}"
        # The stated number of lines is about what changes.
        lines = names["puzzles"].__dict__[cell.exercise].lines
        changed = difflib.ndiff(cell.skeleton().splitlines(), answer.splitlines())
        written = sum(line.startswith("+ ") for line in changed)
        assert written <= 2 * lines + 1, f"{cell.exercise} changes {written} lines"


def alone(page: Path, dialect: str) -> str:
    """A section as one program, its skeletons defined and not checked."""
    cells = section(page, dialect)
    return "\n\n".join(c.skeleton() if c.exercise else c.source for c in cells)


def test_sections_stand_on_their_own(tmp_path: Path) -> None:
    """They use no name of the cells above, and import kernels before they import NKI."""
    for page, dialect in ((p, d) for p in PAGES for d in pages.dialects(pages.named(p))):
        file = tmp_path / f"{page.stem}_{dialect}.py"
        file.write_text(alone(page, dialect))
        imports = [
            node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in ast.parse(alone(page, dialect)).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        of_nki = [at for at, name in enumerate(imports) if NKI.match(name)]
        before = imports[: of_nki[0]] if of_nki else imports
        assert any(re.match(r"(kernels|nkibook|nkisim)\b", name) for name in before), (
            f"the Exercises of {page.name} import {imports[len(before) :][:1] or 'nothing'} first; "
            "import kernels before it, as a reader who begins there has to"
        )
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "--quiet"]
    found = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert found.returncode == 0, f"names of cells above the Exercises:\n{found.stdout}"


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_a_section_runs_in_a_fresh_process(framework: str, run_python: Callable[..., Any]) -> None:
    """Where nothing is imported yet: one page stands for those of its framework."""
    page = next(page for page in PAGES if framework_of(page.stem) == framework)
    run_python(alone(page, pages.dialects(pages.named(page))[0]))


@pytest.mark.parametrize(("page", "dialect"), SECTIONS)
def test_page_puzzles_and_solutions_have_the_same_names(page: Path, dialect: str) -> None:
    there = [cell.exercise for cell in section(page, dialect) if cell.exercise]
    assert len(there) == len(set(there)), f"an exercise stands twice in {page.name}: {there}"
    asked = exercises(puzzles(page))
    assert set(there) == asked, (
        f"{page.name}: exercises are the cells with the tag `exercise` between `## Exercises` and "
        f"the next heading of that level. Of nkibook/exercises/puzzles/{page.stem}.py, "
        f"{sorted(asked - set(there))} are not there; not in that module are "
        f"{sorted(set(there) - asked)}"
    )
    text = page.read_text()
    path = rf"exercises/solutions/(?:(neuronxcc|nki)/)?{page.stem}\.py\n:pyobject: (\w+)\n"
    shown = re.findall(path, text)
    for name in there:
        assert callable(solution(page, name, dialect))
        folder = dialect if name in own_answers(page, dialect) else ""
        assert shown.count((folder, name)) == 1, (
            f"{page.name} shows the solution of {name} once in a dialect, by a folded "
            f"`literalinclude` of its file in ../nkibook/exercises/solutions with `:pyobject:`"
        )
    assert {name for _, name in shown} == set(there)
    assert 2 <= len(there) <= 5, f"{page.name} has {len(there)} exercises"


def test_every_chapter_has_exercises() -> None:
    chapters = {Path(page).name for page in pages.in_order()}
    chapters = {page for page in chapters if not page.startswith("api")}
    assert chapters - REFERENCE == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_a_task_fits_into_the_column_of_the_page(page: str) -> None:
    module = importlib.import_module(f"nkibook.exercises.puzzles.{page}")
    tasks = [value for value in vars(module).values() if isinstance(value, Exercise)]
    lines = [line for task in tasks for line in repr(task).splitlines()]
    assert [line for line in lines if len(line) > COLUMN] == []


def test_there_are_bug_hunts() -> None:
    errors = set()
    hunts = 0
    for page in PAGES:
        text = page.read_text()
        hunts += len(re.findall(r"^### .*bug hunt.*$", text, re.MULTILINE))
        for dialect in pages.dialects(pages.named(page)):
            stored = pages.notebook(pages.named(page), dialect).read_text()
            errors |= set(re.findall(r"Not yet: (\w+Error)", stored))
    assert hunts >= 4
    # A race between programs, an uninitialised tile, a partition-axis reduction, a mask.
    assert errors >= {"RaceError", "UninitializedReadError", "ParameterError", "OutOfBoundsError"}

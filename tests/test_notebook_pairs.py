"""notebooks/*.md and the .ipynb beside them say the same, and keep the rules of the book."""

import ast
import functools
import logging
import os
import re
import shutil
from pathlib import Path

import dialects
import executed
import nbformat
import pytest
import yaml
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

import notebooks

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "notebooks").glob("*.md"))
BOOK_PAGES = sorted((ROOT / "book").glob("*.md"))
MAX_CELL_LINES = 40

PAIR = """\
---
kernelspec:
  name: python3
  display_name: Python 3
---

# Title

```{code-cell} python
:tags: [hide-input]

print(1)
```
"""


def name(path: Path) -> str:
    return path.stem


@functools.cache
def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebooks.read_source(path).cells if cell.cell_type == "code"]


def checks(source: str) -> int:
    """Count the statements of a cell that fail when something is wrong."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            found += 1
        elif isinstance(node, ast.Call):
            called = node.func
            function = called.attr if isinstance(called, ast.Attribute) else ""
            function = called.id if isinstance(called, ast.Name) else function
            found += function.startswith(("assert_", "check")) or function == "raises"
    return found


def test_there_are_notebooks() -> None:
    assert SOURCES


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_pair_agrees(source: Path) -> None:
    found = notebooks.check_pair(source)
    page = source.relative_to(ROOT).with_suffix("")
    assert not found, "\n".join([f"edit {page}.md, then run: make notebooks P={page}", *found])


def test_what_the_book_has_executed_is_stored() -> None:
    """In the place of nbval, which executes only what the book has not: see the Makefile."""
    built = {d: executed.current(SOURCES, d) for d in (dialects.NEURONXCC, dialects.NKI)}
    if not any(built.values()):
        pytest.skip("the book was not built from this code, so nbval executes all notebooks")
    found = [
        line
        for dialect, results in built.items()
        for source, result in results.items()
        for line in notebooks.drift(source, result, dialect)
    ]
    assert not found, "\n".join([*found, "run `make notebooks`"])


def test_every_ipynb_has_a_source() -> None:
    twins = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert twins == {path.stem for path in SOURCES}


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_page_checks_what_it_says(source: Path) -> None:
    assert sum(checks(cell.source) for cell in code_cells(source)) >= 1


@pytest.mark.parametrize("source", [*SOURCES, *BOOK_PAGES], ids=name)
def test_cells_keep_the_rules(source: Path) -> None:
    for number, cell in enumerate(code_cells(source)):
        where = f"{source.name}, code cell {number}:\n{cell.source}"
        tags = set(cell.metadata.get("tags", []))
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, where
        # The tag tolerates an error and never requires one: assert the error in the cell.
        assert not tags & {"raises-exception", "nbval-raises-exception", "nbval-skip"}, where
        # nbval runs cells without history, where IPython ignores the semicolon.
        assert not cell.source.rstrip().endswith(";"), where
        # The exercises of another page may change without this page being executed again.
        for imported in re.findall(r"exercises\.(?:puzzles|solutions) import (\w+)", cell.source):
            assert imported == source.stem, where


def test_table_of_contents_lists_every_page() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = [toc["root"]]
    listed += [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    there = {path.relative_to(ROOT).with_suffix("").as_posix() for path in SOURCES + BOOK_PAGES}
    assert len(listed) == len(set(listed))
    assert set(listed) == there


# The tool itself, on a pair made to drift.


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("stored") / "page.md"
    source.write_text(PAIR)
    notebooks.write_if_changed(notebooks.execute(source), source.with_suffix(".ipynb"))
    return source


@pytest.fixture
def pair(stored: Path, tmp_path: Path) -> Path:
    shutil.copytree(stored.parent, tmp_path / "pair")
    return tmp_path / "pair" / stored.name


def test_executing_again_changes_nothing(pair: Path) -> None:
    assert not notebooks.write_if_changed(notebooks.execute(pair), pair.with_suffix(".ipynb"))
    assert notebooks.check_pair(pair) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("print(1)", "print(2)"),
        ("# Title", "# Another title"),
        ("hide-input", "remove-output"),
        ("```{code-cell} python\n:tags: [hide-input]\n", "```python"),
        (PAIR[-1:], "\n```{code-cell} python\n2\n```\n"),
    ],
    ids=["code", "prose", "tag", "type", "cell"],
)
def test_drift_of_the_source_is_found(pair: Path, old: str, new: str) -> None:
    text = pair.read_text()
    assert old in text
    pair.write_text(new.join(text.rsplit(old, 1)))
    assert notebooks.check_pair(pair)


def test_drift_of_the_notebook_is_found(pair: Path) -> None:
    path = pair.with_suffix(".ipynb")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].outputs[0] = nbformat.v4.new_output(
        "display_data", data={"text/html": "<b>1</b>", "text/plain": "1"}
    )
    nbformat.write(notebook, path)
    assert "stores more than its content" in notebooks.check_pair(pair)[0]
    path.unlink()
    assert notebooks.check_pair(pair) == ["page.ipynb is missing"]


def test_an_edit_changes_one_cell_id(pair: Path) -> None:
    before = [cell.id for cell in notebooks.read_source(pair).cells]
    pair.write_text(pair.read_text().replace("print(1)", "print(2)"))
    after = [cell.id for cell in notebooks.read_source(pair).cells]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_ignored_outputs_are_not_stored(pair: Path) -> None:
    pair.write_text(pair.read_text().replace("hide-input", "nbval-ignore-output"))
    assert notebooks.execute(pair).cells[1].outputs == []


def test_what_the_build_executed_is_compared_with_what_is_stored(tmp_path, capsys) -> None:
    source, cache = tmp_path / "page.md", get_cache(tmp_path / "cache")
    source.write_text(PAIR.replace("print(1)", "print(20 + 1)"))

    def built() -> int:
        cache.add_nb_to_project(str(source), read_data={"name": "myst_nb_md", "type": "plugin"})
        load_executor("local-serial", cache, logging.getLogger()).run_and_cache(timeout=60)
        return notebooks.check_built([source], tmp_path / "cache")

    stored = notebooks.read_source(source)
    [cell] = [cell for cell in stored.cells if cell.cell_type == "code"]
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="21\n")]
    notebooks.write_if_changed(notebooks.sanitize(stored), source.with_suffix(".ipynb"))
    assert notebooks.check_built([source], tmp_path / "cache") == 1
    assert "has not executed it" in capsys.readouterr().out
    assert built() == 0, capsys.readouterr().out

    twin = source.with_suffix(".ipynb")
    twin.write_text(twin.read_text().replace('"21\\n"', '"22\\n"'))
    assert built() == 1
    printed = capsys.readouterr().out
    assert "22" in printed
    assert "21" in printed


def test_jupyterlab_opens_a_page_whose_twin_is_newer(tmp_path):
    """As it is after `make notebooks`, and in an unpacked archive. Text comes from the .md."""
    for name in ("jupytext.toml", "giou_cpp.md", "giou_cpp.ipynb"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path)
    page = tmp_path / "giou_cpp.md"
    page.write_text(page.read_text().replace("# GIOU in C++ on GpSimd", "# Changed in the text", 1))
    os.utime(page, (0, 0))
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)(root_dir=str(tmp_path))
    cells = manager.get("giou_cpp.md")["content"]["cells"]
    assert cells[0]["source"].startswith("# Changed in the text")
    assert any(cell.get("outputs") for cell in cells)  # which only the twin has

"""nbval, with this repository's settings, fails what has to fail and nothing else.

A notebook is stored as `make notebooks` stores it, edited, and run as `make test` runs it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import executing
import nbformat
import pages
import pytest

import notebooks

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
---
kernelspec:
  name: python3
  display_name: Python 3
---
"""

# Text, and then what differs in every run and is not compared: HTML, a picture, an address.
CELLS = [
    "value = 41\nprint('value', value)",
    "{'value': value}",
    "print('gone')",
    "assert value == 41",
    "from IPython.display import HTML, display\ndisplay(HTML(f'<b>{id(object())}</b>'))",
    "import matplotlib.pyplot as plt, os\nplt.plot(list(os.urandom(9)))\nplt.show()",
    "object()",
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook of CELLS, executed and made as `make notebooks` does."""
    root = tmp_path_factory.mktemp("book")
    (root / "book").mkdir()
    blocks = [f"```{{code-cell}} python\n{cell}\n```\n" for cell in CELLS]
    (root / "book/page.md").write_text("\n".join([HEADER, "# Title\n", *blocks]))
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    (ended,) = executing.execute([("book/page", "nki")], root)
    assert ended.error == ""
    text = notebooks.written(notebooks.make("book/page", "nki", ended.result, root))
    path = pages.notebook("book/page", "nki", root)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def run_nbval(notebook: Path) -> tuple[dict[int, str], str]:
    """Run nbval on a notebook with the options of `make test` and the real conftest.py.

    Returns the outcome of each cell (PASSED or FAILED), and the report.
    """
    makefile = (ROOT / "Makefile").read_text()
    options = " ".join(re.findall(r"--nbval[\w-]*(?: (?:\d+|tools/[\w.]+))?", makefile)).split()
    assert options[0] == "--nbval"
    options = [str(ROOT / option) if "/" in option else option for option in options]
    command = [sys.executable, "-m", "pytest", "-rA", "--color=no", "-p", "no:cacheprovider"]
    command += ["-p", "conftest", "-c", ROOT / "pyproject.toml", *options, notebook]
    run = subprocess.run(
        command,
        cwd=notebook.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) .*::Cell (\d+)", run.stdout, re.MULTILINE)
    assert (run.returncode == 0) == all(word == "PASSED" for word, _ in outcomes)
    return {int(cell): word for word, cell in outcomes}, run.stdout + run.stderr


def test_an_unchanged_notebook_passes(stored: Path) -> None:
    outcomes, report = run_nbval(stored)
    assert outcomes == {cell: "PASSED" for cell in range(len(CELLS) + 1)}, report  # with set-up


def test_changed_missing_and_raising_cells_fail(stored: Path) -> None:
    notebook = nbformat.read(stored, as_version=4)
    edits = ["print('value', 42)", "{'value': 42}", "pass", "assert value == 42"]
    _, *cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(cells, edits, strict=False):
        cell.source = source if source != edits[0] else "value = 41\n" + source
    path = stored.with_name("edited.ipynb")
    nbformat.write(notebook, path)

    outcomes, report = run_nbval(path)
    expected = ["PASSED"]  # the cell that sets up
    expected += ["FAILED" if cell < len(edits) else "PASSED" for cell in range(len(CELLS))]
    assert outcomes == dict(enumerate(expected)), report
    assert "mismatch 'stdout'" in report
    assert "mismatch 'text/plain'" in report
    assert "Missing output fields" in report
    assert "Cell execution caused an exception" in report


def test_stored_outputs_are_those_of_every_run(stored: Path) -> None:
    notebook = nbformat.read(stored, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {output.get("name"): 0})}
    assert kinds == {"text/plain", "text/html", "image/png", "stdout"}
    assert not re.search(r"at 0x[0-9a-f]", stored.read_text())
    # nbval compares nothing for a cell without an execution count.
    assert [cell.execution_count for cell in code] == list(range(1, len(CELLS) + 2))

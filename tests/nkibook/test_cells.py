"""Cells that begin with a mark run where it says; elsewhere a note is shown."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import jupytext
import pytest
from IPython.core.interactiveshell import InteractiveShell

import kernels
from nkibook import cells

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.md"))


@pytest.mark.parametrize(
    ("cell", "marked"),
    [
        ("# simulator only\nx = 1", True),
        ("\n\n# simulator only: a device keeps no record\nx = 1", True),
        ("x = 1\n# simulator only", False),
        ("# simulators only differ\nx = 1", False),
        ("", False),
    ],
)
def test_the_mark_is_the_first_line(cell, marked):
    assert cells.needs_simulator(cell) is marked


@pytest.mark.parametrize("backend", ["nkisim", "neuronxcc"])
def test_marked_cells_run_with_the_simulator_only(monkeypatch, backend):
    monkeypatch.setattr(kernels, "backend", backend)
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    cells.register()
    cells.register()  # a second import of nkibook changes nothing
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        shell.run_cell("# simulator only\nx = 41").raise_error()
        shell.run_cell("y = 1").raise_error()
    assert ("x" in shell.user_ns) is (backend == "nkisim")
    assert shell.user_ns["y"] == 1
    assert ("Not run" in printed.getvalue()) is (backend == "neuronxcc")
    assert shell.input_transformers_cleanup.count(cells.transform) == 1


@pytest.mark.parametrize(
    ("cell", "dialect", "simulator"),
    [
        ("# import nki\nx = 1", "nki", False),
        ("# neuronxcc.nki\nx = 1", "neuronxcc", False),
        ("# import nki, simulator only: a profile\nx = 1", "nki", True),
        ("# simulator only, neuronxcc.nki\nx = 1", "neuronxcc", True),
        ("# import nki and more\nx = 1", None, False),
        ("# import nki, on a trn2\nx = 1", None, False),
        ("import nki", None, False),
    ],
)
def test_marks_of_a_dialect(cell, dialect, simulator):
    assert cells.dialect_of(cell) == dialect
    assert cells.needs_simulator(cell) is simulator


@pytest.mark.parametrize("backend", ["nkisim", "neuronxcc"])
@pytest.mark.parametrize("dialect", kernels.DIALECTS)
def test_cells_of_the_other_dialect_are_not_run(monkeypatch, backend, dialect):
    monkeypatch.setattr(kernels, "backend", backend)
    monkeypatch.setattr(kernels, "dialect", dialect)
    # Set first, so that what `register` sets is undone before other tests.
    for variable in ("NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    cells.register()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        shell.run_cell("# import nki\nran = 'nki'").raise_error()
        shell.run_cell("# neuronxcc.nki\nran = 'neuronxcc'").raise_error()
        shell.run_cell(f"# simulator only, {cells.MARKS[dialect]}\nseen = 1").raise_error()
    assert shell.user_ns["ran"] == dialect
    assert ("seen" in shell.user_ns) is (backend == "nkisim")
    other = next(mark for mark, name in cells.DIALECTS.items() if name != dialect)
    assert f"this cell is in {other}, and kernels here are in {cells.MARKS[dialect]}" in (
        printed.getvalue()
    )
    chip = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert (chip == "trn2") is (dialect == "nki" and backend == "nkisim")
    joined = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    assert (joined == "1") is (dialect == "nki" and backend == "neuronxcc")


@pytest.mark.parametrize(("dialect", "refused"), [("nki", True), ("neuronxcc", False)])
@pytest.mark.parametrize("before", [True, False], ids=["later cell", "first cell"])
def test_the_older_dialect_is_refused_at_once(monkeypatch, before, dialect, refused):
    monkeypatch.setattr(kernels, "backend", "neuronxcc")
    monkeypatch.setattr(kernels, "dialect", dialect)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    shell.user_ns["cells"] = cells
    register = "cells.register()\n"  # as `import nkibook` does
    if before:
        shell.run_cell(register, store_history=True).raise_error()
    cell = ("" if before else register) + "import neuronxcc.nki as nki\nran = True"
    done = shell.run_cell(cell, store_history=True)
    assert ("ran" in shell.user_ns) is not refused
    if refused:
        with pytest.raises(ImportError, match=r"SDK 2\.29 was the last for neuronxcc\.nki"):
            done.raise_error()
    shell.run_cell("# simulator only\nimport neuronxcc.nki", store_history=True).raise_error()
    shell.run_cell("y = '''\nimport neuronxcc.nki\n'''", store_history=True).raise_error()


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
@pytest.mark.parametrize("dialect", kernels.DIALECTS)
def test_the_mark_is_known_before_it_is_used(page, dialect):
    """A page imports something of nkibook in a cell before the first that needs the simulator. Its
    notebook in a dialect has no cells of the other one."""
    known = False
    for cell in jupytext.read(page, fmt="md:myst").cells:
        if cell.cell_type == "code" and cells.dialect_of(cell.source) in (None, dialect):
            assert known or not cells.needs_simulator(cell.source), cell.source
            known = known or "nkibook" in cell.source

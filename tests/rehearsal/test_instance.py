"""The book on an instance, as far as that can be tested without one: with a stand-in for the SDK.

Every notebook that runs there and every exercise's solution run as `make test-neuron` runs them,
and in test_report.py the tests marked `neuron`; the SDK is the one of `stand_in.py`, which refuses
what Neuron SDK 2.28.1 refuses, and for the pages in `import nki` what 2.33.1 refuses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import needs
import pages
import pytest
import stand_in
from rehearse import Rehearsal, rehearse, sdk_of
from remembered import remembered

from nkibook.cells import dialect_of, needs_simulator
from nkibook.exercises.running import framework_of

ROOT = Path(__file__).resolve().parents[2]

# Programs that a notebook may have XLA compile, or kernels that it may launch on NumPy arrays: on a
# device each takes seconds to minutes. A loop without torch_xla.sync() goes far beyond these.
CEILINGS = {"torch": 60, "jax": 140, "numpy": 60}
# Pages that count what a program costs, and launch nothing.
COUNTING = {"which_kernel"}


def on_device(dialect: str) -> set[str]:
    """The notebooks of a dialect that a device runs, by name."""
    return {
        Path(page).name
        for page, of in pages.runs()
        if of == dialect and needs.SIMULATOR not in needs.of(page, dialect)
    }


def code_of(name: str, dialect: str) -> list[str]:
    """The cells of a page that a device runs in a dialect, down to the exercises: the answers to
    these are rehearsed in both dialects below."""
    found = []
    for cell in pages.cells(f"notebooks/{name}"):
        if cell.cell_type == "markdown" and re.search(r"^## Exercises$", cell.source, re.MULTILINE):
            break
        if cell.cell_type == "code" and dialect_of(cell.source) in (None, dialect):
            found.append(cell.source)
    return [cell for cell in found if not needs_simulator(cell)]


INF2, TRN2 = on_device("neuronxcc"), on_device("nki")
# A device runs the same cells in both dialects: rehearsed once, with the newer SDK.
SAME = {name for name in INF2 & TRN2 if code_of(name, "neuronxcc") == code_of(name, "nki")}


def lacking(name: str, dialect: str) -> str:
    """What a page needs and this machine has not; "" if nothing."""
    return needs.missing(f"notebooks/{name}", dialect)


def cases(names: Iterable[str], dialect: str = "neuronxcc") -> list:
    found = {name: lacking(name, dialect) for name in sorted(names)}
    skip = pytest.mark.skipif
    return [pytest.param(n, marks=skip(bool(x), reason=f"needs: {x}")) for n, x in found.items()]


def explained(found: Rehearsal) -> str:
    return f"{found.result}\n{found.result.output[-6000:]}"


@pytest.fixture
def runs(request, tmp_path):
    """Rehearse one page on an instance in a dialect, with the stand-in for its SDK."""

    def run(name: str, instance: str, dialect: str) -> None:
        notebook = ROOT / f"notebooks/{dialect}/{name}.ipynb"
        sdk = sdk_of(notebook)
        with remembered([name], instance, sdk):
            folder, forking = (request.getfixturevalue(f)(sdk) for f in ("sdks", "forkings"))
            found = rehearse(folder, notebook, instance, tmp_path, forking)
            assert found.result.right, explained(found)
            assert found.refused == (), "a device would run these, with undefined results"
            assert (found.launches == 0) == (name in COUNTING)
            assert found.runtimes == (framework_of(name),)
            assert found.programs <= CEILINGS[framework_of(name)]

    return run


# Classes, since pytest-xdist hands a class to one worker: these take longest. PyTorch pages take
# half of all.
class TestPyTorch:
    @pytest.mark.parametrize("name", cases(p for p in INF2 - SAME if framework_of(p) == "torch"))
    def test_notebook_runs(self, runs, name):
        runs(name, "inf2", "neuronxcc")


class TestOthers:
    @pytest.mark.parametrize("name", cases(p for p in INF2 - SAME if framework_of(p) != "torch"))
    def test_notebook_runs(self, runs, name):
        runs(name, "inf2", "neuronxcc")


class TestTrn2:
    # What differs on a trn2 with SDK 2.28.1: two cores in one launch, and more cores to shard over.
    @pytest.mark.parametrize("name", cases(["add_jax"]))
    def test_notebook_runs(self, runs, name):
        runs(name, "trn2", "neuronxcc")

    @pytest.mark.parametrize("name", cases(TRN2, "nki"))
    def test_notebook_in_nki_runs(self, runs, name):
        runs(name, "trn2", "nki")


SOLUTIONS = """
import importlib, sys
if sys.argv[1]:
    importlib.import_module(sys.argv[1])
from nkibook.exercises import Exercise
wrong = []
for page in sys.argv[2:]:
    puzzles = importlib.import_module(f"nkibook.exercises.puzzles.{page}")
    for name, exercise in vars(puzzles).items():
        if isinstance(exercise, Exercise):
            verdict = exercise.check(exercise.solution)
            print(page, name, verdict.message)
            if not verdict:
                wrong.append((page, name))
sys.exit(f"wrong: {wrong}" if wrong else 0)
"""
FRAMEWORKS = ("torch", "jax", "numpy")


def solve(request: Any, instance: str, folder: Path, framework: str, dialect: str) -> None:
    pages = sorted(p for p in on_device(dialect) if framework_of(p) == framework)
    pages = [p for p in pages if not lacking(p, dialect)]
    if not pages:
        pytest.skip(f"needs: {framework}")
    sdk = sdk_of(ROOT / f"notebooks/{dialect}/{pages[0]}.ipynb")
    with remembered(pages, instance, sdk, "solutions"):
        script = folder / "solutions.py"
        script.write_text(SOLUTIONS)
        device = {"neuronxcc": "torch_xla", "nki": "torch_neuronx"}[dialect]
        stand_ins = request.getfixturevalue("sdks")
        # Kernels in `import nki` are launched as the pages launch them: on one core.
        changes = {"NEURON_LOGICAL_NC_CONFIG": "1"}
        done = subprocess.run(
            [
                *(stand_in.python(stand_ins(sdk)), str(script)),
                *(device if framework == "torch" else "", *pages),
            ],
            env=stand_in.environment(stand_ins(sdk), instance, folder) | changes,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(done.stdout.splitlines()) >= len(pages) > 0
        (note,) = stand_in.read_log(folder)
        assert note["refused"] == []
        assert note["runtimes"] == [framework]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_solutions_of_exercises_are_right(request, tmp_path, name):
    solve(request, "inf2", tmp_path, name, "neuronxcc")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_solutions_in_nki_are_right(request, tmp_path, name):
    solve(request, "trn2", tmp_path, name, "nki")


def test_without_an_sdk_nothing_is_claimed_to_be_tested():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/neuron_tests.py")],
        env={k: v for k, v in os.environ.items() if k != "NKI_BACKEND"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "no Neuron SDK here" in done.stderr
    assert done.stdout == ""

"""The book on an instance, as far as that can be tested without one: with a stand-in for the SDK.

Every notebook that runs there and every exercise's solution run as `make test-neuron` runs them,
and in test_report.py the tests marked `neuron`; the SDK is the one of `stand_in.py`, which refuses
what Neuron SDK 2.28.1 refuses, and for the pages in `import nki` what 2.33.1 refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import dialects
import jupytext
import pytest
import stand_in
import stored_results
from rehearse import Rehearsal, rehearse
from remembered import remembered

from nkibook.cells import dialect_of, needs_simulator
from nkibook.exercises.running import framework_of

ROOT = Path(__file__).resolve().parents[2]

# Programs that a notebook may have XLA compile, or kernels that it may launch on NumPy arrays: on a
# device each takes seconds to minutes. A loop without torch_xla.sync() goes far beyond these.
CEILINGS = {"torch": 60, "jax": 140, "numpy": 60}
ELSEWHERE, OLDER, TODAYS = (
    {Path(page).name for page in stored_results.NEEDS[need]}
    for need in (stored_results.SIMULATOR, stored_results.OLDER, stored_results.TODAYS)
)
BOTH = {Path(page).name for page in stored_results.IN_BOTH}


def same(page: str) -> bool:
    """Whether a device runs the same cells in both dialects, down to the exercises: the answers to
    these are rehearsed in both below."""
    text = (ROOT / f"notebooks/{page}.md").read_text().partition("\n## Exercises\n")[0]
    code = (c.source for c in jupytext.reads(text, fmt="md:myst").cells if c.cell_type == "code")
    return not any(dialect_of(cell) for cell in code if not needs_simulator(cell))


INF2 = (OLDER | BOTH) - ELSEWHERE
TRN2 = (TODAYS | BOTH) - ELSEWHERE
SAME = {page for page in BOTH - ELSEWHERE if same(page)}  # rehearsed once, with the newer SDK

needs = {
    "torch": pytest.mark.skipif(find_spec("torch_xla") is None, reason="needs: torch_xla"),
    "jax": pytest.mark.skipif(find_spec("jax") is None, reason="needs: jax"),
    "numpy": [],
}


def pages(names: Iterable[str]) -> list:
    return [pytest.param(n, marks=needs[framework_of(n)]) for n in sorted(names)]


def explained(found: Rehearsal) -> str:
    return f"{found.result}\n{found.result.output[-6000:]}"


@pytest.fixture
def runs(request, tmp_path):
    """Rehearse one page on an instance, with the stand-in of that fixture, built when needed."""

    def run(name: str, instance: str, sdk: str) -> None:
        with remembered([name], instance, sdk):
            folder, forking = request.getfixturevalue(sdk), request.getfixturevalue("forking")
            dialect = dialects.NEURONXCC if sdk == "sdk" else dialects.NKI
            notebook = dialects.stored_in(ROOT / f"notebooks/{name}.ipynb", dialect)
            found = rehearse(folder, notebook, instance, tmp_path, forking)
            assert found.result.right, explained(found)
            assert found.refused == (), "a device would run these, with undefined results"
            assert found.launches > 0
            assert found.runtimes == (framework_of(name),)
            assert found.programs <= CEILINGS[framework_of(name)]

    return run


# Classes, since pytest-xdist hands a class to one worker: these take longest. PyTorch pages take
# half of all.
class TestPyTorch:
    @pytest.mark.parametrize("name", pages(p for p in INF2 - SAME if framework_of(p) == "torch"))
    def test_notebook_runs(self, runs, name):
        runs(name, "inf2", "sdk")


class TestOthers:
    @pytest.mark.parametrize("name", pages(p for p in INF2 - SAME if framework_of(p) != "torch"))
    def test_notebook_runs(self, runs, name):
        runs(name, "inf2", "sdk")


class TestTrn2:
    # What differs on a trn2 with SDK 2.28.1: two cores in one launch, and more cores to shard over.
    @pytest.mark.parametrize("name", pages(["add_jax"]))
    def test_notebook_runs(self, runs, name):
        runs(name, "trn2", "sdk")

    @pytest.mark.parametrize("name", pages(TRN2))
    def test_notebook_in_nki_runs(self, runs, name):
        runs(name, "trn2", "nki_sdk")


SOLUTIONS = """
import importlib, sys
if sys.argv[1] == "torch":
    import torch_xla
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


def chosen(framework: str, pages: set[str]) -> list[str]:
    return sorted(page for page in pages if framework_of(page) == framework)


def solve(sdk: Path, instance: str, folder: Path, framework: str, pages: list[str]) -> None:
    script = folder / "solutions.py"
    script.write_text(SOLUTIONS)
    # Kernels in `import nki` are launched as the pages launch them: on one core.
    changes = {"NEURON_LOGICAL_NC_CONFIG": "1"}
    done = subprocess.run(
        [sys.executable, str(script), framework, *pages],
        env=stand_in.environment(sdk, instance, folder) | changes,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= len(pages) > 0
    (note,) = stand_in.read_log(folder)
    assert note["refused"] == []
    assert note["runtimes"] == [framework]


@pytest.mark.parametrize("name", [pytest.param(f, marks=m) for f, m in needs.items()])
def test_solutions_of_exercises_are_right(request, tmp_path, name):
    pages = chosen(name, INF2)
    with remembered(pages, "inf2", "solutions"):
        solve(request.getfixturevalue("sdk"), "inf2", tmp_path, name, pages)


@pytest.mark.parametrize("name", [pytest.param(f, marks=needs[f]) for f in needs])
def test_solutions_in_nki_are_right(request, tmp_path, name):
    pages = chosen(name, TODAYS | BOTH)
    with remembered(pages, "trn2", "solutions"):
        solve(request.getfixturevalue("nki_sdk"), "trn2", tmp_path, name, pages)


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

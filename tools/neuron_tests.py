"""On a Neuron instance: run the tests that are marked `neuron`, and every notebook.

    python tools/neuron_tests.py                 all of it: what `make test-neuron` runs
    python tools/neuron_tests.py NAME.ipynb ...  these notebooks only

A notebook is tested as it is by `make test`, but for its text, which differs between the simulator
and a device: cells must not raise, and their assertions must hold. Each has a process of its own,
one after the other: a process that uses the NeuronCores has all of them. Pages that need what is
not there are skipped, and so are cells that need the simulator; both are said and counted.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import needs
import pages

import kernels
from kernels.arrays import frameworks_of_device
from nkibook.cells import needs_simulator

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 1200  # seconds: the first call of each kernel compiles it
_TALLY = re.compile(r"(\d+) (passed|failed|skipped|error|errors)\b")


@dataclass(frozen=True)
class Result:
    """What became of a notebook.

    Attributes:
        name: of the notebook.
        skipped: why it was not run; "" when it was.
        passed, failed: cells, failed ones with those that could not run for it.
        checks, skipped_checks: assertions and exercises' checks in it, and how many of them are in
            cells that were not run.
        output: what pytest printed.
        seconds: how long it took.
    """

    name: str
    skipped: str
    passed: int
    failed: int
    checks: int
    skipped_checks: int
    output: str
    seconds: float

    @property
    def right(self) -> bool:
        return bool(self.skipped) or (self.failed == 0 and self.passed > 0)

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.name:28} skipped: needs {self.skipped} ({self.checks} checks)"
        verdict = "passed" if self.right else f"FAILED {self.failed}"
        left_out = f", {self.skipped_checks} of {self.checks} checks need the simulator"
        return f"{self.name:28} {verdict}, {self.passed} cells{left_out}, {self.seconds:.0f} s"


def checks(source: str) -> int:
    """How many assertions and checks of exercises a cell has."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell of IPython's
        return 0
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = [f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called]
    found = sum(name.startswith(("check", "assert_")) for name in names)
    return found + sum(isinstance(node, ast.Assert) for node in ast.walk(tree))


def run_notebook(
    path: Path, environment: dict[str, str] | None = None, python: str = sys.executable
) -> Result:
    """Execute a notebook cell by cell in a process of its own; only what it asserts counts.

    Args:
        path: the .ipynb.
        environment: of the process; this one's by default.
        python: that runs it.
    """
    cells = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    total = sum(map(checks, cells))
    left_out = sum(checks(cell) for cell in cells if needs_simulator(cell))
    command = [python, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "-o", "addopts=-ra", str(path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    output = done.stdout + done.stderr
    counts = {what.rstrip("s"): int(n) for n, what in _TALLY.findall(output[-400:])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if done.returncode and not failed:
        failed = len(cells)
    return Result(path.stem, "", counts.get("passed", 0), failed, total, left_out, output, seconds)


def frameworks() -> list[str]:
    """The frameworks that are installed."""
    return [name for name in frameworks_of_device() if name != "numpy"]


def run_tests(
    framework: str, environment: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the tests marked `neuron` with arrays of a framework, in a process of their own.

    Args:
        framework: "numpy", "torch" or "jax".
        environment: of the process; this one's by default.
        **options: further ones of subprocess.run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--neuron", framework, "-m", "neuron"]
    command += ["-k", framework, "-p", "no:xdist", "-o", "addopts=--import-mode=importlib -rfE"]
    return subprocess.run(
        [*command, "tests/neuron"], cwd=ROOT, env=environment, text=True, **options
    )


def not_here(path: Path) -> Result | None:
    """The result of a notebook that needs what is not there; None when it can run."""
    need = needs.missing(pages.named(path), path.parent.name)
    if not need:
        return None
    cells = (c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    total = sum(map(checks, cells))
    return Result(path.stem, need, 0, 0, total, total, "", 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: the tests and all")
    parser.add_argument("--tests", metavar="FRAMEWORK", help="only the tests marked neuron, of one")
    options = parser.parse_args()
    asked = options.notebooks
    if kernels.backend != "neuronxcc":
        print(
            "error: no Neuron SDK here, so nothing would run on a device (nkisim, the simulator, "
            "has the kernels). On an inf2, trn1 or trn2 instance, with the SDK in the environment: "
            "make test-neuron VENV=/path/to/environment. On this machine: make test",
            file=sys.stderr,
        )
        return 2
    compiler = f"neuronx-cc {kernels.backend_version}"
    print(f"Neuron SDK: {compiler}, kernels in {kernels.dialect}", flush=True)
    if options.tests:
        return run_tests(options.tests).returncode
    failed = False
    for framework in () if asked else ("numpy", *frameworks()):
        print(f"==> tests marked neuron, {framework}", flush=True)
        failed |= run_tests(framework).returncode != 0
    results = []
    for path in asked or sorted((ROOT / "notebooks" / kernels.dialect).glob("*.ipynb")):
        result = not_here(path) or run_notebook(path)
        results.append(result)
        print(result, flush=True)
        if not result.right:
            print(result.output)
    total, left_out = (sum(getattr(r, n) for r in results) for n in ("checks", "skipped_checks"))
    wrong = [r.name for r in results if not r.right]
    print(f"{len(results)} notebooks, {total} checks in them, {left_out} not run on this machine.")
    if wrong:
        print(f"error: {', '.join(wrong)} failed", file=sys.stderr)
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())

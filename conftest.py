"""What every test shares: the copy under test, devices, and how nbval compares outputs."""

import functools
import gc
import os
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path

# Arrays of tests are small, and there is a worker a processor: more threads, which OpenBLAS and
# PyTorch read once, when they are imported, wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import executing
import needs
import pages
import pytest

# What takes longest, in seconds of a processor. Workers begin with these, so that none is
# left over at the end: xdist hands out a file, or a class, in the order of collection.
LONGEST = (
    "rehearsal/test_instance.py::TestTrn2",
    "rehearsal/test_instance.py::TestPyTorch",
    "rehearsal/test_instance.py::TestOthers",
    "notebooks/",
    "exercises/test_pages.py",
    "kernels/test_operators.py",
    "rehearsal/",
    "kernels/test_rmsnorm_ffi.py",
    "kernels/test_jax_rules.py",
    "test_book_build.py",
    "nkibook/test_hlo_torch.py",
    "nkibook/test_bench.py",
    "cost/test_validation_held_out.py",
    "kernels/test_dialect.py",
    "nkibook/test_plots.py",
    "nkisim/test_cli.py",
    "fuzz/",
    "properties/test_elementwise.py",
    "kernels/test_giou_jax.py",
)

# What `make test` leaves to `make test ALL=1`, which the gate runs: what builds something, starts
# processes for most of its tests, or runs pages. Files and folders of tests/.
NOT_QUICK = (
    "cost/test_validation_record.py",
    "customop",
    "exercises/test_pages.py",
    "frameworks",
    "fuzz",
    "judging",
    "kernels/test_backend.py",
    "kernels/test_command_line.py",
    "kernels/test_dialect.py",
    "kernels/test_jax_rules.py",
    "kernels/test_rmsnorm_ffi.py",
    "kernels/test_rmsnorm_ffi_building.py",
    "kernels/test_rmsnorm_ffi_handlers.py",
    "neuron",
    "nkibook/test_bench.py",
    "nkibook/test_doctor.py",
    "nkibook/test_hlo_jax.py",
    "nkibook/test_hlo_torch.py",
    "nkibook/test_plots.py",
    "nkisim/test_cli.py",
    "nkisim/test_install.py",
    "nkisim/test_translate_check.py",
    "rehearsal",
    "test_book_build.py",
    "test_nbval_catches.py",
    "test_notebooks.py",
    "test_packaging.py",
)

ROOT = Path(__file__).resolve().parent


class StoredOutputs(Container):
    """What nbval leaves out of a comparison: all but text. Pictures are stored as PNG, and made by
    cells as SVG; `make book CLEAN=1` compares those."""

    stored = ("data", "text/plain", "stdout")

    def __contains__(self, key: object) -> bool:
        return key not in self.stored


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Have nbval compare text only."""
    collectors = yield
    for collector in collectors:
        if hasattr(collector, "skip_compare"):
            collector.skip_compare = StoredOutputs()
    return collectors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="leave out the tests that take longest (NOT_QUICK)"
    )
    parser.addoption(
        "--neuron",
        choices=("numpy", "torch", "jax"),
        help="run the tests marked `neuron`, with arrays of this framework, on a Neuron device",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, import nothing of NOT_QUICK; None leaves the decision to pytest."""
    left_out = (ROOT / "tests" / name for name in NOT_QUICK)
    return True if config.getoption("--quick") and collection_path in left_out else None


def pytest_configure() -> None:
    """Refuse to test another copy of the package than the checkout's, and names of no test."""
    gone = [name for name in NOT_QUICK if not (ROOT / "tests" / name).exists()]
    if gone:
        raise pytest.UsageError(f"NOT_QUICK of conftest.py names what is not there: {gone}")
    for name in ("kernels", "nkibook", "nkisim"):
        spec = find_spec(name)
        if spec and spec.origin and ROOT not in Path(spec.origin).resolve().parents:
            raise pytest.UsageError(
                f"tests of {ROOT} would import {name} from {spec.origin}; run `make test`, or "
                f"install this checkout: pip install --no-deps -e {ROOT}"
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while ten thousand tests are collected: all of it stays. It is not
    frozen, since to count what is frozen, as the simulator does, takes as long as there is much."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def longest_first(items: list[pytest.Item]) -> None:
    """Put what LONGEST names first, and of the notebooks those that take longest."""
    took = executing.page_seconds().items()
    seconds = {Path(page).name: max(of.values()) for page, of in took}

    def rank(item: pytest.Item) -> tuple[int, float]:
        at = next((at for at, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST))
        return at, -seconds.get(item.path.stem, 0.0)

    items.sort(key=rank)  # a stable sort: tests of a file and cells of a page stay in their order


@functools.cache
def _lacking(notebook: Path) -> str:
    """What a notebook of a page needs and this machine lacks; "" for another notebook."""
    if notebook.parents[1] != ROOT / "notebooks":
        return ""
    return needs.missing(pages.named(notebook), notebook.parent.name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked `neuron` unless --neuron is given, and notebooks that need a compiler, a
    framework or the simulator on a machine without."""
    longest_first(items)
    skip = pytest.mark.skip(reason="runs on a Neuron instance: make test-neuron")
    for item in items:
        if item.path.suffix == ".ipynb" and (need := _lacking(item.path)):
            item.add_marker(pytest.mark.skip(reason=f"needs: {need}"))
        if item.get_closest_marker("neuron") and not config.getoption("--neuron"):
            item.add_marker(skip)

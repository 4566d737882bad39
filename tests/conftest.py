"""What every test shares: the copy under test, devices, and how nbval compares outputs."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Stored notebooks keep text only (tools/notebooks.py), so these are not there to compare with.
NOT_STORED = ("image/png", "image/jpeg", "image/svg+xml", "text/html", "text/latex", "stderr")
NOT_STORED += ("application/json", "application/javascript", "text/markdown")


def neuron_device() -> bool:
    """Tell whether the Neuron driver shows a device on this machine."""
    return any(Path("/dev").glob("neuron[0-9]*"))


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test another copy of the package than the checkout's."""
    from importlib.util import find_spec

    for name in ("kernels", "nkisim"):
        spec = find_spec(name)
        origin = spec.origin if spec else None
        if origin and ROOT not in Path(origin).resolve().parents:
            raise pytest.UsageError(
                f"tests of {ROOT} would import {name} from {origin}; run `make test`, or "
                f"install the checkout with: pip install --no-deps -e {ROOT}"
            )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a Neuron device where there is none."""
    if neuron_device():
        return
    skip = pytest.mark.skip(reason="needs a Neuron device (/dev/neuron*)")
    for item in items:
        if item.get_closest_marker("neuron"):
            item.add_marker(skip)


def pytest_pycollect_makemodule() -> None:
    """Make the simulated devices the default before any test module imports a framework."""
    if not neuron_device():
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        os.environ.setdefault("PJRT_DEVICE", "CPU")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path):  # noqa: ANN201
    """Tell nbval not to compare the kinds of output that are never stored."""
    collector = yield
    for found in collector if isinstance(collector, list) else [collector]:
        if type(found).__name__ == "IPyNbFile":
            found.skip_compare = (*found.skip_compare, *NOT_STORED)
    return collector

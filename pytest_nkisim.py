"""A plugin of pytest: tests of NKI kernels on the CPU simulator, with or without a Neuron device.

It does nothing until it is asked to, by `pytest --nkisim` or `nkisim = true` in the settings of
pytest: then `import nki` and `neuronxcc.nki` are the simulator's in the test process, in workers
of pytest-xdist and in the Python programs that tests start. A suite needs no other change.

The fixture `modelled_time` compares the modelled time of a kernel with the one that is stored
beside the test file. The fixture `judged` judges a kernel by a task, as `nkisim.judge` does, in
processes of its own.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"
RELEASE = "NKISIM_NKI"
STORED = "modelled_times.json"
TOLERANCE = 0.05


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nkisim", "NKI kernels on the CPU simulator")
    group.addoption(
        "--nkisim",
        action="store_true",
        help="`import nki` and `neuronxcc.nki` are the simulator's, unless the SDK is installed",
    )
    group.addoption("--nkisim-target", metavar="CHIP", help="trn1, inf2, trn2 or trn3")
    group.addoption("--nkisim-nki", metavar="RELEASE", help="which `import nki`: 0.7, or 0.6")
    group.addoption(
        "--nkisim-strict",
        action="store_true",
        help="every check of the simulator is an error, and so is every warning of it",
    )
    group.addoption(
        "--nkisim-store",
        action="store_true",
        help=f"write the modelled times into {STORED}, in place of comparing with it",
    )
    parser.addini("nkisim", "as --nkisim", type="bool", default=False)
    parser.addini("nkisim_target", "as --nkisim-target", default="")
    parser.addini("nkisim_nki", "as --nkisim-nki", default="")
    parser.addini("nkisim_strict", "as --nkisim-strict", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py, which may import nki."""
    options = early_config.known_args_namespace
    chosen = options.nkisim_target or early_config.getini("nkisim_target")
    release = options.nkisim_nki or early_config.getini("nkisim_nki")
    strict = options.nkisim_strict or early_config.getini("nkisim_strict")
    if not (options.nkisim or early_config.getini("nkisim") or chosen or release or strict):
        return
    if chosen:
        os.environ[TARGET] = chosen
    if release:
        os.environ[RELEASE] = release
    from nkisim.checking.settings import CHECKS, Mode, checks
    from nkisim.errors import ParameterError
    from nkisim.frontends.nki import releases
    from nkisim.machine.target import target
    from nkisim.runtime.children import reach
    from nkisim.runtime.install import install

    try:
        target()
        releases.release()
    except ParameterError as error:
        raise pytest.UsageError(f"{error.problem}: {error.rule}") from None
    if install():
        os.environ.setdefault("PJRT_DEVICE", "CPU")  # what torch_xla runs on without a device
        reach()
    if strict:
        early_config.addinivalue_line("filterwarnings", "error::nkisim.NkiWarning")
        modes: dict[str, Mode] = dict.fromkeys(CHECKS, "error")
        early_config.add_cleanup(_entered(checks(**modes)))


def _entered(context: Any) -> Any:
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def pytest_report_header(config: pytest.Config) -> str | None:
    if "nkisim" not in sys.modules:
        return None
    from nkisim.frontends.nki import releases
    from nkisim.machine.target import target

    chosen = target()
    by = f" by {chosen.source}" * bool(chosen.source)
    return f"nkisim: {chosen.machine.name}{by}, import nki as NKI {releases.release()}"


@pytest.fixture
def modelled_time(request: pytest.FixtureRequest) -> ModelledTime:
    """Compares the modelled time of a kernel with the stored one: see `ModelledTime.__call__`.

    The test is skipped where the Neuron SDK is installed, which has no modelled times.
    """
    from nkisim.runtime.install import sdk_installed

    if sdk_installed():
        pytest.skip("times are modelled by nkisim, and the Neuron SDK is installed")
    return ModelledTime(request)


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> Any:
    """`judged(kernel, task, seed=None)`, as `nkisim.judge`: the verdict; and the test fails with
    its text unless the kernel is right. Paths begin at the test's folder. With --nkisim-strict the
    task is strict."""
    strict = request.config.getoption("nkisim_strict") or request.config.getini("nkisim_strict")

    def judged_(kernel: Any, task: Any, seed: int | None = None) -> Any:
        __tracebackhide__ = True
        from nkisim.judging import Task, judge, read

        folder = Path(request.path).parent
        if isinstance(kernel, str):
            kernel = str(folder / kernel)
        if not isinstance(task, Task):
            task = read(folder / task)[0]
        verdict = judge(kernel, replace(task, strict=task.strict or strict), seed=seed)
        if not verdict.right:
            pytest.fail(str(verdict), pytrace=False)
        return verdict

    return judged_


class ModelledTime:
    """What the fixture `modelled_time` gives a test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._path = Path(request.path).with_name(STORED)
        self._key = f"{request.path.name}::{request.node.nodeid.partition('::')[2]}"
        self._store = request.config.getoption("nkisim_store")
        self._workers = hasattr(request.config, "workerinput")
        self._calls = 0

    def __call__(
        self,
        kernel: Any,
        /,
        *args: Any,
        rtol: float = TOLERANCE,
        at_most_us: float | None = None,
        bound: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Model a launch, and fail the test if it is not as fast as it was, or slower than said.

        Without `at_most_us` and `bound` the time is compared with the one in
        `modelled_times.json` beside the test file, which `pytest --nkisim-store` writes. A kernel
        that became faster by more than the tolerance fails, too: store the new time.

        Args:
            kernel: a kernel, or one bound to a launch grid.
            *args, **kwargs: its arguments, as for `nkisim.profile`; shapes suffice.
            rtol: how far from the stored time, as a share of it.
            at_most_us: a limit in microseconds, in place of a stored time.
            bound: the resource that has to be the busiest: "Tensor", "Vector", "Scalar", "GpSimd",
                "Sync" or "DMA queues".

        Returns:
            The nkisim.Timeline.
        """
        __tracebackhide__ = True
        import nkisim

        found = nkisim.profile(kernel, *args, **kwargs)
        self._calls += 1
        wrong = []
        if at_most_us is not None and found.latency_us > at_most_us:
            wrong.append(f"{found.latency_us:.1f} µs, and the test allows {at_most_us:.1f} µs")
        if bound is not None and found.bound.name != bound:
            wrong.append(f"the busiest resource is {found.bound.name}, and the test says {bound}")
        if at_most_us is None and bound is None:
            wrong += self._compared(found, rtol)
        if wrong:
            pytest.fail(f"{found.kernel}, modelled: " + "; ".join(wrong) + f"\n{found}")
        return found

    def _compared(self, found: Any, rtol: float) -> list[str]:
        """What is wrong with a time, against the stored one."""
        __tracebackhide__ = True
        key = self._key if self._calls == 1 else f"{self._key} #{self._calls}"
        stored = json.loads(self._path.read_text()) if self._path.exists() else {}
        if self._store:
            if self._workers:
                pytest.fail("--nkisim-store writes one file: run it without -n")
            stored[key] = {
                "machine": found.machine.name,
                "latency_us": round(found.latency_us, 3),
                "bound": found.bound.name,
            }
            self._path.write_text(json.dumps(dict(sorted(stored.items())), indent=2) + "\n")
            return []
        again = f"pytest --nkisim-store {self._key.partition('::')[0]}"
        if key not in stored:
            return [f"no time is stored for {key} in {STORED}; store it: {again}"]
        before = stored[key]
        if before["machine"] != found.machine.name:
            return [f"the stored time is of {before['machine']}, this one of {found.machine.name}"]
        change = found.latency_us / before["latency_us"] - 1
        if abs(change) <= rtol:
            return []
        return [
            f"{found.latency_us:.1f} µs, stored {before['latency_us']:.1f} µs: {change:+.1%}, and "
            f"the tolerance is {rtol:.0%}; the kernel was bound by {before['bound']}; "
            f"if the change is intended, run {again}"
        ]

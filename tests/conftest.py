"""Fixtures that several test folders share. Importing ``kernels`` settles the NKI backend."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import settings

import kernels  # noqa: F401  (makes neuronxcc.nki importable for every test)

ROOT = Path(__file__).resolve().parents[1]

# The same few examples in every run, on every machine, however slow it is: more of them would find
# the same each time. New ones are drawn once a week, by pytest --hypothesis-profile=weekly.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile(
    "weekly", derandomize=False, deadline=None, max_examples=200, print_blob=True
)
settings.load_profile("repeatable")

# JAX has eight CPU devices in every test, and in every process that a test starts, so that what is
# dealt out over devices needs no process of its own: `Mesh(np.array(jax.devices()), ("x",))`.
# What is not dealt out runs on the first. JAX reads this when it makes its devices, once a process.
DEVICES = "--xla_force_host_platform_device_count"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}=8".strip()

# XLA compiles hundreds of small programs, that run once: optimising them takes longer than they do.
# What is under test XLA does not compile, and the book's pages are run with all optimisations.
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def pytest_collection_finish() -> None:
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_disable_most_optimizations", True)


# A warning that a test does not expect is an error. To expect one is `pytest.warns`, or the mark
# `filterwarnings` where it is beside the point.
# The kernel of a test may read a part of its input, for that is often how it is small.
EXPECTED = r"ignore:[\d,]+ of [\d,]+ elements of the input:nkisim.NkiWarning"
# A test that starts a process may share its own with one that has used JAX: the child runs exec.
FORKED = r"ignore:os\.fork\(\) was called:RuntimeWarning"
# Folders in which also those are errors that Python is silent about, as of a file left open.
STRICT = {"cost", "customop", "neuronxcc", "nki", "nkisim", "properties", "tuning"}
SILENT = ("ignore::ResourceWarning", "ignore::ImportWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors; a test's own marks go before this one."""
    for item in items:
        top, folder = item.path.relative_to(ROOT).parts[:2]
        if top == "tests":
            silent = () if folder in STRICT else SILENT
            marks = pytest.mark.filterwarnings("error", *silent, EXPECTED, FORKED)
            item.add_marker(marks, append=False)


@functools.cache
def _generators(module: ModuleType) -> list[tuple[np.random.Generator, dict]]:
    """The random generators among a module's names, and their states before its first test."""
    found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
    return [(generator, generator.bit_generator.state) for generator in found]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the generators of a test's module anew: its data do not depend on which tests ran."""
    for generator, state in _generators(item.module):
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def _no_setting_is_left_behind():
    """A test that leaves a setting of NKI in the environment fails, and not those after it."""

    def settings() -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if k.startswith(("NEURON_", "NKI_"))}

    before = settings()
    yield
    after = settings()
    for name in before.keys() | after.keys():
        os.environ.pop(name, None)
    os.environ.update(before)
    assert after == before, "use monkeypatch.setenv, also for what the code under test sets"


@pytest.fixture
def run_python(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python in a fresh process, in an empty directory, with this checkout importable.

    Called as ``run_python(code)`` or ``run_python("-m", "module", ...)``; ``env`` adds environment
    variables and ``path`` folders in front of the import path. Returns the completed process,
    whatever its exit code, unless ``check`` (the default) demands 0.
    """

    def run(
        *command: str, env: dict[str, str] | None = None, path: tuple = (), check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        if len(command) == 1:
            # A file and not -c: error messages quote the source line.
            script = tmp_path / "script.py"
            script.write_text(textwrap.dedent(command[0]))
            command = (str(script),)
        folders = [*map(str, path), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            **QUICK,
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            **(env or {}),
        }
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check and done.returncode:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture(scope="session")
def compute() -> Callable:
    """``compute(body, *arrays)`` loads the arrays whole, calls ``body`` on the tiles and gives what
    it returns: one tile or several, as arrays. With ``mask=f`` the store of the result is under
    the mask ``f()``, and the rest of the array keeps the fill value 77. ``target="trn2"`` traces
    for that platform."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    def run(
        body: Callable,
        *arrays: np.ndarray,
        mask: Callable | None = None,
        target: str | None = None,
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        options = {} if target is None else {"platform_target": target}

        @nki.jit(**options)
        def kernel(arrays):
            result = body(*(nl.load(a) for a in arrays))
            tiles = result if isinstance(result, tuple) else (result,)
            outs = []
            for tile in tiles:
                out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
                if mask is not None:
                    nl.store(out, nl.full(tile.shape, 77, dtype=tile.dtype))
                nl.store(out, tile, mask=None if mask is None else mask())
                outs.append(out)
            return tuple(outs)

        outs = kernel(list(arrays))
        return outs[0] if len(outs) == 1 else outs

    return run

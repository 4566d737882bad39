"""The stand-in for the SDK, built once a session, and processes that see it."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import textwrap
from pathlib import Path

import forks
import pytest
import stand_in


@pytest.fixture(scope="session")
def sdks(tmp_path_factory):
    """The folder of the stand-in for each SDK of stand_in.SDKS, built when it is asked for."""

    @functools.cache
    def built(name: str) -> Path:
        return stand_in.build(tmp_path_factory.mktemp("sdk") / "env", name)

    return built


@pytest.fixture(scope="session")
def forkings(sdks):
    """The socket of a process that forks, with the frameworks of an SDK's stand-in imported, by the
    SDK: see tools/forks.py."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def serving(name: str) -> Path:
            folder = sdks(name)
            started = forks.serving(stand_in.environment(folder, "inf2"), stand_in.python(folder))
            return stack.enter_context(started)

        yield serving


@pytest.fixture(scope="session")
def on_instance(sdks, tmp_path_factory):
    """Run Python code on the instance that a stand-in plays, by default inf2 with SDK 2.28.1."""

    def run(code: str, instance: str = "inf2", sdk: str = "2.28.1") -> str:
        folder = tmp_path_factory.mktemp("instance")
        script = folder / "script.py"  # a file: kernels have source lines
        script.write_text(textwrap.dedent(code))
        done = subprocess.run(
            [stand_in.python(sdks(sdk)), str(script)],
            env=stand_in.environment(sdks(sdk), instance),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    return run

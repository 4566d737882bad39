"""The stand-in for the SDK, built once a session, and processes that see it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import forks
import pytest
import stand_in


@pytest.fixture(scope="session")
def sdk(tmp_path_factory):
    """The folder of the stand-in for SDK 2.28.1."""
    return stand_in.build(tmp_path_factory.mktemp("sdk") / "site")


@pytest.fixture(scope="session")
def nki_sdk(tmp_path_factory):
    """The folder of the stand-in for SDK 2.33.1, whose kernels are in `import nki`."""
    return stand_in.build(tmp_path_factory.mktemp("nki_sdk") / "site", "2.33.1")


@pytest.fixture(scope="session")
def forking(sdk):
    """The socket of a process that forks, with the frameworks imported: see tools/forks.py."""
    with forks.serving(stand_in.environment(sdk, "inf2")) as path:
        yield path


@pytest.fixture(scope="session")
def on_instance(sdk, tmp_path_factory):
    """Run Python code on the instance that a stand-in plays, by default inf2 with SDK 2.28.1."""

    def run(code: str, instance: str = "inf2", sdk: Path = sdk) -> str:
        folder = tmp_path_factory.mktemp("instance")
        script = folder / "script.py"  # a file: kernels have source lines
        script.write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, str(script)],
            env=stand_in.environment(sdk, instance),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    return run

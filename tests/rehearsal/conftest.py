"""The stand-in for the SDK, built once a session, and processes that see it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import stand_in


@pytest.fixture(scope="session")
def sdk(tmp_path_factory):
    """The folder of the stand-in for the SDK."""
    return stand_in.build(tmp_path_factory.mktemp("sdk") / "site")


@pytest.fixture(scope="session")
def on_instance(sdk, tmp_path_factory):
    """Run Python code on the instance that the stand-in plays, inf2 by default."""

    def run(code: str, instance: str = "inf2") -> str:
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

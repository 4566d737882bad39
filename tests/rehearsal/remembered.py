"""What the rehearsal has passed, and with which files: it is run again when one of them changes.

A page takes 5 to 30 s, and most changes touch none of what it sees. All is run where CI is set, as
`.ci/run` and GitHub do, and after `make clean`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Iterator

import digests
import pytest
from pages import DIALECTS

FOLDER = digests.ROOT / "_build/rehearsed"
# What runs a page: the stand-in, and how nbval is called and compares.
RUNNING = ("tests/rehearsal", "tools/neuron_tests.py", "tools/nbval.ini", "conftest.py")


@functools.cache
def _common() -> str:
    installed = sorted(f"{d.name} {d.version}" for d in importlib.metadata.distributions())
    return digests.common() + digests.digest(RUNNING) + "\n".join(installed)


@contextlib.contextmanager
def remembered(pages: list[str], *where: str) -> Iterator[None]:
    """Skip the test if this block has ended well with the same files, or remember that it has.

    Args:
        pages: names of the notebooks that it runs, or whose exercises.
        where: the instance and the SDK.
    """
    files = [f"notebooks/{dialect}/{page}.ipynb" for page in pages for dialect in DIALECTS]
    exercises = [digests.of_exercises(page) for page in pages]
    what = "\n".join([_common(), digests.digest(files), *exercises, *where])
    passed = FOLDER / hashlib.sha256(what.encode()).hexdigest()
    if passed.exists() and not os.environ.get("CI"):
        pytest.skip("passed before with the same page, packages and stand-in (CI=1 runs all)")
    yield
    FOLDER.mkdir(parents=True, exist_ok=True)
    passed.write_text(f"{' '.join(pages)} on {' '.join(where)}\n")

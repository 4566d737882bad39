"""`python tests/mutations [MODULE...]`: whether tests see faults in lines that matter.

Each mutation of `table.py` is put into a copy of the working tree, in a temporary folder, and the
tests that it names are run there, file by file, until one fails. The exit status is 1 if one
survives, or if a text is no longer there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What the mutations do not touch is imported once: each run of tests is a fork of this process.
import hypothesis.extra.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import numpy as np  # noqa: F401
import pytest
from table import MODULES, Mutation

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for a file of tests; a mutation with which one never ends is killed, too


def main(names: list[str]) -> int:
    """Run the modules of these names; all of them if there is none."""
    unknown = set(names) - MODULES.keys()
    if unknown:
        print(f"no such module: {', '.join(unknown)}; there are: {', '.join(MODULES)}")
        return 2
    outcomes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "tree")
        for name in names or MODULES:
            for mutation in MODULES[name].mutations:
                start = time.perf_counter()
                outcome, by = copy.tried(mutation, MODULES[name].tests)
                outcomes.append(outcome)
                line = f"{outcome:14} {time.perf_counter() - start:4.0f} s  {mutation.file}: "
                print(line + f"{mutation.old!r} -> {mutation.new!r}  {by}", flush=True)
    for outcome in dict.fromkeys(outcomes):
        print(f"{outcomes.count(outcome)} {outcome}")
    return int(set(outcomes) != {"killed"})


class Copy:
    """A copy of the working tree: of the files that Git does not ignore.

    Args:
        tree: the folder, to be made.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._passing: dict[str, bool] = {}  # files of tests, without a mutation
        self._edits = 0
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)

    def tried(self, mutation: Mutation, tests: tuple[str, ...]) -> tuple[str, str]:
        """What becomes of a mutation, "killed", "survived" or what is wrong; and who killed it."""
        file = self._tree / mutation.file
        text = file.read_text() if file.exists() else ""
        if mutation.old not in text:
            return "text not found", ""
        # Python tells by time and length whether a file is the one that it compiled.
        now = file.stat().st_mtime
        self._edits += 1
        file.write_text(text.replace(mutation.old, mutation.new, 1))
        os.utime(file, (now, now + 10 * self._edits))
        try:
            every = dict.fromkeys((*mutation.tests, *tests))
            killer = next((test for test in every if not self._passes(test)), None)
        finally:
            file.write_text(text)
            os.utime(file, (now, now))
        if killer is None:
            return "survived", ""
        if killer not in self._passing:
            self._passing[killer] = self._passes(killer)
        if not self._passing[killer]:
            return "tests fail", f"{killer}, also without the mutation"
        return "killed", killer

    def _passes(self, test: str) -> bool:
        """Whether a file or folder of tests passes."""
        child = os.fork()
        if not child:
            self._run(test)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status == 0
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _run(self, test: str) -> None:
        """In a process of its own: run a file of tests, until one fails."""
        os.chdir(self._tree)
        own = str(ROOT), str(ROOT / "tests/mutations")
        sys.path[:] = [str(self._tree), *(p for p in sys.path if p not in own)]
        os.environ["PYTHONPATH"] = str(self._tree)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", test]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

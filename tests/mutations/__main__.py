"""`python tests/mutations [MODULE...]`: whether tests see faults in lines that matter.

Each mutation of `table.py` is put into a copy of the working tree, in a temporary folder, and the
tests that it names are run there until one fails. The exit status is 1 if one survives, or if a
text is no longer there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from table import MODULES, Mutation

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for the tests of one mutation; one that never ends is killed, too


def main(names: list[str]) -> int:
    """Run the modules of these names; all of them if there is none."""
    unknown = set(names) - MODULES.keys()
    if unknown:
        print(f"no such module: {', '.join(unknown)}; there are: {', '.join(MODULES)}")
        return 2
    outcomes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_to(tree)
        for name in names or MODULES:
            module = MODULES[name]
            files = dict.fromkeys(t for m in module.mutations for t in (*m.tests, *module.tests))
            if run(tree, files) != "survived":
                print(f"{name}: the tests fail without a mutation, or do not run")
                return 2
            for mutation in module.mutations:
                start = perf_counter()
                outcome = tried(tree, mutation, module.tests)
                outcomes.append(outcome)
                line = f"{outcome:14} {perf_counter() - start:4.0f} s  {mutation.file}: "
                print(line + f"{mutation.old!r} -> {mutation.new!r}", flush=True)
    for outcome in dict.fromkeys(outcomes):
        print(f"{outcomes.count(outcome)} {outcome}")
    return int(set(outcomes) != {"killed"})


def copy_to(tree: Path) -> None:
    """The files of the working tree that Git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def tried(tree: Path, mutation: Mutation, tests: tuple[str, ...]) -> str:
    """What became of a mutation: "killed", "survived", or what went wrong."""
    file = tree / mutation.file
    text = file.read_text() if file.exists() else ""
    if mutation.old not in text:
        return "text not found"
    times = file.stat()
    file.write_text(text.replace(mutation.old, mutation.new, 1))
    # Not the time of another text of this length: Python tells by the two whether it compiled it.
    os.utime(file, (times.st_atime, times.st_mtime + 10))
    try:
        return run(tree, dict.fromkeys((*mutation.tests, *tests)), mutated=True)
    finally:
        file.write_text(text)
        os.utime(file, (times.st_atime, times.st_mtime))


def run(tree: Path, tests: dict[str, None], mutated: bool = False) -> str:
    """Run tests until one fails."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    if mutated:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "killed"
    if done.returncode not in (0, 1):
        print(done.stdout[-2000:], done.stderr[-2000:])
        return "does not run"
    return "killed" if done.returncode else "survived"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

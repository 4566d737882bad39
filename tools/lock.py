"""Resolve pyproject.toml and its extras into requirements.txt, one set of pins for all platforms.

requirements-book.txt is the part of it that renders the book: the extra `book`.

`--universal` adds environment markers, so that Linux and macOS read the same file;
`--fork-strategy fewest` keeps one version of each package over Python 3.11-3.14, so that stored
notebook outputs do not depend on the interpreter. No package index is named in the result.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
# The exact environment of the book: every package of pyproject.toml and its extras, pinned.
# Written by `make lock`; edit pyproject.toml instead. Works on Python 3.11-3.14.
# Markers say what has no wheels: torch_xla, triton and nvidia-* but for Linux on x86_64; torch_xla
# and JAX for Python 3.14.
"""

BOOK_HEADER = """\
# What of requirements.txt renders the book from stored results: `make book` installs it.
# Written by `make lock`.
"""


def resolve(upgrade: bool) -> str:
    """Return the resolved requirements, without the header.

    Pins already in requirements.txt are kept unless `upgrade` is set.

    Raises:
        subprocess.CalledProcessError: if there is no solution; uv has printed why.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--fork-strategy", "fewest", "--python-version", "3.11", "--all-extras"]
    command += ["--no-header", "--annotation-style", "line", "--output-file", "requirements.txt"]
    command += ["--upgrade"] if upgrade else []
    subprocess.run([*command, "pyproject.toml"], cwd=ROOT, check=True)
    return (ROOT / "requirements.txt").read_text()


def part(extra: str) -> str:
    """Return the pins of requirements.txt that one extra needs, without the header."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", "3.11", "--extra", extra, "--constraints", "requirements.txt"]
    command += ["--no-header", "--no-annotate", "pyproject.toml"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return run.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions allowed")
    pins = resolve(parser.parse_args().upgrade)
    (ROOT / "requirements.txt").write_text(HEADER + pins)
    (ROOT / "requirements-book.txt").write_text(BOOK_HEADER + part("book"))


if __name__ == "__main__":
    main()

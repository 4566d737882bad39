"""What files hold, in a word that changes when they do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pages import ROOT

# What cells can import, and the packages that they run with.
EXECUTED = ("kernels", "nkibook", "nkisim", "requirements.txt")
# A module a page in each, and no page imports another's.
EXERCISES = (
    "nkibook/exercises/puzzles",
    "nkibook/exercises/solutions",
    "nkibook/exercises/solutions/neuronxcc",
    "nkibook/exercises/solutions/nki",
)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name != "__pycache__" and not child.name.startswith("."):
                yield from _files(child)


def digest(
    names: Iterable[str], root: Path = ROOT, skip: Callable[[Path], bool] = lambda file: False
) -> str:
    """Return the sha256 of every file in `names`, with its path.

    Args:
        names: files and folders; what is not there counts as empty.
        root: where they are.
        skip: says of a file, relative to `root`, that it is left out.
    """
    total = hashlib.sha256()
    for name in names:
        for file in _files(root / name):
            path = file.relative_to(root)
            if not skip(path):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                total.update(f"{path.as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _of_one_page(file: Path) -> bool:
    return file.parent.as_posix() in EXERCISES and not file.stem.startswith("_")


def common() -> str:
    """The sha256 of what all pages depend on: EXECUTED, without the exercises of single pages."""
    return digest(EXECUTED, skip=_of_one_page)


def of_exercises(page: str) -> str:
    """The sha256 of the exercises of a page: specifications and solutions."""
    return digest(f"{folder}/{Path(page).stem}.py" for folder in EXERCISES)

"""Modelled figures on disk, so that a search that was done once is not done again.

The key of an entry is a hash of the whole traced kernel and of the simulator's own source: the
kernel is traced each time, and what is looked up is what scheduling that trace would give. Python
that the kernel calls, and whatever it reads, is in the trace.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nkisim.report.files import write_whole

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

FOLDER = "NKISIM_CACHE"
"""The environment variable that names the folder; without it, nkisim in XDG_CACHE_HOME or
~/.cache."""


class Store:
    """A folder with one JSON file for each traced kernel.

    Args:
        folder: made when something is written; None for the default.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = _default() if folder is None else Path(folder)

    def key(self, trace: Trace) -> str | None:
        """A memo key of a trace and of the simulator that models it; None for a trace without
        one."""
        try:
            whole = pickle.dumps(trace, protocol=5)
        except Exception:  # anything may be part of what a kernel returns
            return None
        return hashlib.sha256(_simulator() + whole).hexdigest()

    def get(self, key: str) -> dict[str, Any] | None:
        """The figures stored for a key; None if there are none, or others than were written."""
        try:
            found = json.loads(self._path(key).read_text(encoding="utf-8"))
            return found["figures"] if found["sha256"] == _sum(found["figures"]) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def put(self, key: str, figures: dict[str, Any]) -> None:
        """Store figures. A folder that cannot be written is left alone."""
        try:
            self._path(key).parent.mkdir(parents=True, exist_ok=True)
            stored = {"sha256": _sum(figures), "figures": figures}
            write_whole(self._path(key), json.dumps(stored))
        except OSError:
            pass  # the next search takes as long as this one

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _sum(figures: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _default() -> Path:
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nkisim" / "tune"


@functools.cache
def _simulator() -> bytes:
    """A hash of the source of nkisim."""
    root = Path(__file__).resolve().parents[1]
    sha = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha.update(path.relative_to(root).as_posix().encode())
        sha.update(path.read_bytes())
    return sha.digest()

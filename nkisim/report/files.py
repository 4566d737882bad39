"""Files that are written whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file. An error leaves what was there before, and nothing else.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    if is_device(path):  # nothing to replace
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # a link stays one
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", text=True)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, path.stat().st_mode if path.exists() else 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def is_device(path: Path) -> bool:
    """Whether a path is a pipe or the like, or what the system lists as a file that a process holds
    open: /dev/stdout, wherever that goes."""
    system = path.parts[:2] in (("/", "dev"), ("/", "proc"))
    return path.exists() and (system or not path.is_file())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

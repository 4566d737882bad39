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
    if path.exists() and not path.is_file():  # a pipe, /dev/stdout: nothing to replace
        path.write_text(text, encoding="utf-8")
        return
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", text=True)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, path.stat().st_mode if path.exists() else 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""What the commands of this package take: types for `argparse`, whose errors come before the work.

A command that measures for minutes and then cannot write what it found has measured for nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError for anything else."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def input_file(text: str) -> Path:
    """A file that can be read. Raises ArgumentTypeError when it cannot."""
    try:
        with open(text, "rb"):
            return Path(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error.strerror}") from None


def output_file(text: str) -> Path:
    """A file that can be written, which stays as it is until it is; none is made.

    A new one is written beside its place first, so its folder must take new files, too.

    Raises:
        ArgumentTypeError: it is a folder, its folder is missing, or one of them is not writable.
    """
    from nkisim.report.files import is_device

    path = Path(text)
    if not text or path.is_dir():
        problem = "is a folder" if text else "has no name"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}: give the name of a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be written: there is no folder {str(path.parent)!r}; make it first"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: no permission")
    if not is_device(path):
        folder = path.resolve().parent
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise argparse.ArgumentTypeError(
                f"{text!r} cannot be written in {str(folder)!r}: {error.strerror}"
            ) from None
    return path

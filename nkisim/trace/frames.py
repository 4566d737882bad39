"""Functions of a kernel while they run: whose they are, and their local variables."""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the simulator, not of the kernel."""
    return _in_package(frame.f_globals.get("__name__", ""))


def set_local(frame: FrameType, name: str, value: Any) -> None:
    """Set a local variable of a function that runs, which has one of this name."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):  # before PEP 667 that is a copy
        write_back = ctypes.pythonapi.PyFrame_LocalsToFast
        write_back(ctypes.py_object(frame), ctypes.c_int(0))


def _in_package(module: str) -> bool:
    return module == "nkisim" or module.startswith("nkisim.")

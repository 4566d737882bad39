"""Functions of a kernel while they run: whose they are, and their local variables."""

from __future__ import annotations

import ctypes
import sys
from types import FrameType, TracebackType
from typing import Any

from nkisim.errors import Location


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the simulator, or of what calls it in torch.compile."""
    module = frame.f_globals.get("__name__", "")
    return _in_package(module) or module == "torch._dynamo.eval_frame"


def line_of(trace: TracebackType) -> Location:
    """The line that an entry of a traceback is at."""
    code = trace.tb_frame.f_code
    return Location(code.co_filename, trace.tb_lineno, code.co_name)


def kernel_line(trace: TracebackType | None) -> Location | None:
    """The innermost line that is not the simulator's; None when there is none."""
    line = None
    while trace is not None:
        if not is_ours(trace.tb_frame):
            line = line_of(trace)
        trace = trace.tb_next
    return line


def kernel_names(trace: TracebackType | None) -> dict[str, Any]:
    """The variables that the innermost line sees that is not the simulator's."""
    names: dict[str, Any] = {}
    while trace is not None:
        frame = trace.tb_frame
        if not is_ours(frame):
            names = {**frame.f_globals, **frame.f_locals}
        trace = trace.tb_next
    return names


def hide_ours(error: BaseException) -> None:
    """Take the simulator's lines out of an error's traceback, so that the kernel's comes last.

    In Python's development mode (`python -X dev`) they stay.
    """
    if sys.flags.dev_mode:
        return
    calls = []
    trace = error.__traceback__
    while trace is not None:
        if not is_ours(trace.tb_frame):
            calls.append(trace)
        trace = trace.tb_next
    for call in reversed(calls):
        trace = TracebackType(trace, call.tb_frame, call.tb_lasti, call.tb_lineno)
    error.__traceback__ = trace


def set_local(frame: FrameType, name: str, value: Any) -> None:
    """Set a local variable of a function that runs, which has one of this name."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):  # before PEP 667 that is a copy
        write_back = ctypes.pythonapi.PyFrame_LocalsToFast
        write_back(ctypes.py_object(frame), ctypes.c_int(0))


def _in_package(module: str) -> bool:
    return module == "nkisim" or module.startswith("nkisim.")

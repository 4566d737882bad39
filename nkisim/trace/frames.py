"""Functions of a kernel while they run: whose they are, and what their names stand for."""

from __future__ import annotations

import ast
import builtins
import ctypes
import dis
import sys
from types import FrameType
from typing import Any

from nkisim.trace.carried import iterated
from nkisim.trace.sources import original_of, source_of

_UNKNOWN = object()
_CACHE = dis.opmap["CACHE"]
_FOR = dis.opmap["FOR_ITER"]
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the simulator, not of the kernel."""
    return _in_package(frame.f_globals.get("__name__", ""))


def is_own_loop(x: Any) -> bool:
    """Whether it is one of the simulator's own loops, such as `nl.affine_range(8)`."""
    frame = getattr(x, "gi_frame", None)
    return frame is not None and is_ours(frame)


def iterates_directly(frame: FrameType) -> bool:
    """Whether a frame's `for` statement goes over a range by itself: not over one that another
    function takes the indices of, as `zip` does, and not to keep what comes of each index, as
    `list(nl.affine_range(8))` and comprehensions do."""
    code, at = frame.f_code, frame.f_lasti
    while code.co_code[at] == _CACHE:  # of that instruction: there Python 3.12 may stand
        at -= 2
    if code.co_code[at] != _FOR or code.co_name in _COMPREHENSIONS:
        return False
    looped = iterated(code, frame.f_lineno)
    if isinstance(looped, ast.NamedExpr):
        looped = looped.value
    if isinstance(looped, ast.Call):
        function = value_of(looped.func, frame)
        return function is range or _in_package(getattr(function, "__module__", None) or "")
    if looped is None:  # else it is a comprehension: Python 3.12 has them in the function itself
        return source_of(original_of(code)) is None
    return is_own_loop(value_of(looped, frame))


def value_of(node: ast.expr, frame: FrameType) -> Any:
    """What a name, or an attribute of one, stands for; an object like no other if that is not
    known."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(value_of(node.value, frame), node.attr, _UNKNOWN)
    return _UNKNOWN


def set_local(frame: FrameType, name: str, value: Any) -> None:
    """Set a local variable of a function that runs, which has one of this name."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):  # before PEP 667 that is a copy
        write_back = ctypes.pythonapi.PyFrame_LocalsToFast
        write_back(ctypes.py_object(frame), ctypes.c_int(0))


def _in_package(module: str) -> bool:
    return module == "nkisim" or module.startswith("nkisim.")

"""The source of a kernel's functions."""

from __future__ import annotations

import functools
import inspect
import linecache
import textwrap
from types import CodeType
from weakref import WeakKeyDictionary

# Of code that was compiled once more from its source, that which it was before.
_originals: WeakKeyDictionary[CodeType, CodeType] = WeakKeyDictionary()


def compiled_again(code: CodeType, original: CodeType) -> None:
    """Note that two functions have one source, and the same lines in it."""
    _originals[code] = original


def original_of(code: CodeType) -> CodeType:
    """The code that has the source of `code`: mostly itself."""
    return _originals.get(code, code)


@functools.lru_cache(maxsize=256)
def source_of(code: CodeType) -> str | None:
    """The text of a function, as if it stood at the left margin; None where there is none, as in
    an interactive session.

    As from `inspect.getsource`, but that looks through all modules for the one of the code.
    """
    if code.co_filename == "<string>":  # of `exec`; Python 3.13 has that of `python -c` there
        return None
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    return textwrap.dedent("".join(inspect.getblock(lines))) if lines else None

"""The source of a kernel's functions."""

from __future__ import annotations

import functools
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

    As from `inspect.getsource`, but that looks through all modules for the one of the code, and
    through all tokens for the end.
    """
    if code.co_filename == "<string>":  # of `exec`; Python 3.13 has that of `python -c` there
        return None
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return None
    end = max(_last_line(code), first + 1)
    # Behind it may be what no code is made of, such as `pass` and closing brackets.
    margin = _indent(lines[first])
    for at in range(end, len(lines)):
        text = lines[at].strip()
        if text and text[0] != "#":
            if _indent(lines[at]) <= margin and text[0] not in ")]}":
                break
            end = at + 1
    return textwrap.dedent("".join(lines[first:end]))


def _last_line(code: CodeType) -> int:
    """The number of the last line of a function that code was made of."""
    inside = [_last_line(x) for x in code.co_consts if isinstance(x, CodeType)]
    lines = {at for line, end, _, _ in code.co_positions() for at in (line, end)}
    return max([at for at in lines.union(inside) if at is not None], default=0)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

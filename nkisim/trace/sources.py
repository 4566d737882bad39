"""The syntax trees of functions, out of the very text that they were compiled from.

Python keeps no text. It is read again, when a kernel is decorated, from the file or the notebook
cell that the function came from. That text may have been edited since, so it is compiled once more,
and counts only if the code of the function comes out of it again.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple
from weakref import WeakKeyDictionary

# Text at the time when a function was decorated; and, of code that was compiled once more with
# changes, that which it was before.
_texts: WeakKeyDictionary[CodeType, str] = WeakKeyDictionary()
_originals: WeakKeyDictionary[CodeType, CodeType] = WeakKeyDictionary()

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def keep_text(code: CodeType) -> None:
    """Remember the text that a function comes from, as it is now."""
    text = _read(code.co_filename)
    if text is not None:
        _texts[code] = text


def compiled_again(code: CodeType, original: CodeType) -> None:
    """Note that two functions have one text, and the same lines in it."""
    _originals[code] = original


def definition(code: CodeType) -> _Definition | None:
    """The syntax tree of a function; None where its text is not known, as in some interactive
    sessions and of files that were edited. Its lines are those of the file. Not to be changed."""
    code = _originals.get(code, code)
    text = text_of(code)
    if text is None:
        return None
    module = _parse(code.co_filename, text)
    return module.definitions.get((code.co_name, code.co_firstlineno)) if module else None


def text_of(code: CodeType) -> str | None:
    """The text of the file, or cell, that a function was compiled from; None where it is not known.

    What is there now is looked at for functions that were not decorated.
    """
    for text in (_texts.get(code), _read(code.co_filename)):
        if text is not None:
            module = _parse(code.co_filename, text)
            if module is not None and code in module.codes:
                return text
    return None


def find(definitions: ast.AST, name: str, line: int) -> _Definition | None:
    """The definition of a function in a tree, by its name and its first line; None if there is none
    or if there are several."""
    found = [
        node
        for node in ast.walk(definitions)
        if isinstance(node, _Definition) and node.name == name and _first_line(node) == line
    ]
    return found[0] if len(found) == 1 else None


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object, and all that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


class _Module(NamedTuple):
    """A text, compiled.

    Attributes:
        codes: of all functions in it.
        definitions: by name and first line.
    """

    codes: frozenset[CodeType]
    definitions: dict[tuple[str, int], _Definition | None]


@functools.lru_cache(maxsize=64)
def _parse(filename: str, text: str) -> _Module | None:
    try:
        tree = ast.parse(text, filename)
        code = compile(tree, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    definitions: dict[tuple[str, int], _Definition | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Definition):
            key = node.name, _first_line(node)
            definitions[key] = None if key in definitions else node
    return _Module(frozenset(codes_in(code)), definitions)


def _first_line(node: _Definition) -> int:
    """The first line of a function, its decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _read(filename: str) -> str | None:
    if filename == "<string>":  # of `exec`; Python 3.13 has that of `python -c` there
        return None
    linecache.checkcache(filename)
    return "".join(linecache.getlines(filename)) or None

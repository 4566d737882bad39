"""What the code of a kernel's functions may change in Python, besides its own variables."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType

_STORES_NAME = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_STORES_CELL = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_STORES_ATTRIBUTE = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_BY_NAME = frozenset({"setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars"})
# They make an object that nobody knows yet, or an assignment that is seen calls them.
_HARMLESS = frozenset({"__init__", "__new__", "__post_init__", "__setattr__", "__delattr__"})
_SCOPES = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # but no function


@functools.lru_cache(maxsize=4096)
def changes_variables(code: CodeType) -> bool:
    """Whether a function, or one defined in it, may change a global, a variable of a function
    around it, or an attribute; or whether that is not known, as it imports others."""
    is_harmless = code.co_name in _HARMLESS
    does = {dis.opname[x] for x in code.co_code[::2]}  # to take all of it apart is slow
    if does & _STORES_NAME or "IMPORT_NAME" in does:
        return True
    around = code.co_freevars
    if around and does & _STORES_CELL:
        stores = (x for x in dis.get_instructions(code) if x.opname in _STORES_CELL)
        if any(x.argval in around for x in stores):
            return True
    if not is_harmless and (does & _STORES_ATTRIBUTE or not _BY_NAME.isdisjoint(code.co_names)):
        return True
    return any(map(changes_variables, _inner(code)))


@functools.lru_cache(maxsize=4096)
def defines_functions(code: CodeType) -> bool:
    """Whether a function defines others."""
    return any(inner.co_name not in _SCOPES or defines_functions(inner) for inner in _inner(code))


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (x for x in code.co_consts if isinstance(x, CodeType))

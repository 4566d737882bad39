"""The names that a function looks up, read from its bytecode."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import NamedTuple

# What looks up names that need not stand in the code.
_ASKING_NAMES = frozenset(
    {"__dict__", "__getattribute__", "attrgetter", "methodcaller", "getattr_static", "getmembers"}
)


class Names(NamedTuple):
    """The names that a function, and the functions defined in it, look up.

    Attributes:
        variables: names of global variables.
        attributes: the other names, and text that may be one, as in `getattr(config, "TILE")`.
        imported: names of modules.
        pairs: global variables with the attributes that they are asked for.
        asks: whether names are looked up that need not stand in the code.
    """

    variables: frozenset[str]
    attributes: frozenset[str]
    imported: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    asks: bool


@functools.lru_cache(maxsize=1024)
def names_in(code: CodeType) -> Names:
    """The names that a code object looks up."""
    variables: set[str] = set()
    attributes = set(code.co_names)
    imported: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    asks = not _ASKING_NAMES.isdisjoint(code.co_names)
    variable = None
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and variable is not None:
            pairs.add((variable, step.argval))
        variable = None
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            variable = step.argval
            variables.add(variable)
            asks |= variable in ("getattr", "hasattr") and not _asks_for_text(steps, at)
        elif step.opname == "IMPORT_NAME":
            imported.add(step.argval)
        elif step.argval in ("getattr", "hasattr"):  # of the module builtins
            asks = True
    for constant in code.co_consts:
        if isinstance(constant, str):
            attributes.add(constant)
        elif isinstance(constant, CodeType):
            inner = names_in(constant)
            variables |= inner.variables
            attributes |= inner.attributes
            imported |= inner.imported
            pairs |= inner.pairs
            asks |= inner.asks
    return Names(*map(frozenset, (variables, attributes, imported, pairs)), asks)


def _asks_for_text(steps: list[dis.Instruction], at: int) -> bool:
    """Whether the function that is loaded at a place is called with text as its second argument, as
    in `getattr(config, "TILE")`."""
    depth, second = 0, None
    for step in steps[at + 1 :]:
        if step.opname in ("PRECALL", "CALL") and step.arg == depth:
            return second is not None and isinstance(second.argval, str)
        if "JUMP" in step.opname:  # an argument that is decided
            return False
        depth += dis.stack_effect(step.opcode, step.arg)
        if depth == 2:
            second = step if step.opname in ("LOAD_CONST", "RETURN_CONST") else None
        if depth < 0:
            return False
    return False

"""What a function reads by name, from its bytecode."""

from __future__ import annotations

import dis
import functools
import re
from types import CodeType
from typing import NamedTuple

GLOBAL, ENCLOSED = "global", "enclosed"
_VARIABLES = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), GLOBAL),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), ENCLOSED),
}
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOTHING = frozenset({"EXTENDED_ARG", "CACHE", "NOP", "PUSH_NULL", "PRECALL"})
_OUTSIDE = frozenset({"IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
# Attributes with such names lead to what belongs to others, as `__globals__` does, but for these.
_PLAIN = frozenset(
    {"__class__", "__dict__", "__name__", "__qualname__", "__init__", "__new__", "__post_init__"}
    | {"__init_subclass__", "__set_name__", "__setattr__", "__delattr__", "__call__", "__hash__"}
    | {"__len__", "__iter__", "__next__", "__contains__", "__getitem__", "__setitem__", "__str__"}
    | {"__repr__", "__format__", "__bool__", "__int__", "__float__", "__index__", "__enter__"}
    | {"__exit__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__"}
    | {"__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__neg__"}
)
# Those lead there, too: the frame of a generator, and text that asks for attributes.
_LEADING = frozenset({"gi_frame", "cr_frame", "ag_frame", "format", "format_map"})


class Reads(NamedTuple):
    """What a function, and the functions defined in it, read by name.

    Attributes:
        chains: variables, each with the attributes that it is asked for: `nl.tile_size.pmax` is
            `("global", "nl", "tile_size", "pmax")`. Of enclosing functions: `("enclosed", ...)`.
        compared: those of them that stand on the right of `is`.
        identity: whether identities of other values are compared.
        namespaces: whether a `__dict__` is asked for, which may be that of a class.
        catches: whether errors are caught without a class that is named.
        doubt: why these are not all; "" where they are.
    """

    chains: frozenset[tuple[str, ...]]
    compared: frozenset[tuple[str, ...]]
    identity: bool
    namespaces: bool
    catches: bool
    doubt: str


@functools.lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """What a code object reads by name."""
    chains: set[tuple[str, ...]] = set()
    compared: set[tuple[str, ...]] = set()
    identity, doubts = False, list[str]()
    texts = [x for x in code.co_consts if isinstance(x, str)]
    namespaces = any("__dict__" in text for text in (*code.co_names, *texts))
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NOTHING]
    named = any(step.opname.startswith("CHECK_E") for step in steps)
    catches = bool(code.co_exceptiontable) and not named
    end = 0  # of the last chain
    asked: dict[int, tuple[str, ...]] = {}  # at the place of a variable: by getattr
    for at, step in enumerate(steps):
        if step.opname in _VARIABLES:
            end = _end_of_chain(steps, at)
            chain = _VARIABLES[step.opname], step.argval, *[s.argval for s in steps[at + 1 : end]]
            chains.add((*chain, *asked.pop(at, ())))
            if steps[end].opname == "IS_OP":
                compared.add(chain)
            if step.argval in ("getattr", "hasattr"):
                asked[at + 1] = _asked_for(steps, at)
                text = asked[at + 1][:1]
                doubts += _doubts_of(*text) if text else [f"{step.argval} of a computed name"]
        elif "_ATTR" in step.opname or step.opname == "LOAD_METHOD":
            doubts += _doubts_of(step.argval, steps[at - 1])
        elif step.opname == "MATCH_CLASS":
            doubts += _doubts_of_pattern(step, steps[at - 1])
        elif step.opname == "IS_OP":
            known = at == end or _is_one_of_a_kind(steps[at - 1])
            identity |= not known and code.co_name != "__eq__"  # which may begin so, to be quick
        elif step.opname in _OUTSIDE:
            what = "imports" if step.opname == "IMPORT_NAME" else "changes the global variable"
            doubts.append(f"{code.co_name} {what} {step.argval}")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = reads_of(constant)
            chains |= inner.chains
            compared |= inner.compared
            identity |= inner.identity
            namespaces |= inner.namespaces
            catches |= inner.catches
            doubts.append(inner.doubt)
    doubt = next(filter(None, doubts), "")
    return Reads(frozenset(chains), frozenset(compared), identity, namespaces, catches, doubt)


def _end_of_chain(steps: list[dis.Instruction], at: int) -> int:
    """The step behind a variable and the attributes that it is asked for."""
    end = at + 1
    while steps[end].opname in _ATTRIBUTES:
        end += 1
    return end


def _asked_for(steps: list[dis.Instruction], at: int) -> tuple[str, ...]:
    """The text with which getattr or hasattr, loaded at a place, is called on a variable or an
    attribute of one, as in `getattr(config, "TILE", 64)`; empty where it is not called so."""
    if not steps[at + 1].opname.startswith("LOAD_"):
        return ()
    place = _end_of_chain(steps, at + 1)
    name, call = steps[place], steps[place + 1]
    if call.opname.startswith("LOAD_"):  # a default
        call = steps[_end_of_chain(steps, place + 1)]
    known = name.opname == "LOAD_CONST" and isinstance(name.argval, str)
    return (name.argval,) if known and call.opname == "CALL" else ()


def _is_one_of_a_kind(step: dis.Instruction) -> bool:
    """Whether a step loads a class, or a constant that there is once."""
    if step.opname == "LOAD_CONST":
        return any(step.argval is x for x in (None, True, False, ...))
    return step.opname in _ATTRIBUTES and step.argval == "__class__"


def leads_elsewhere(attribute: str) -> bool:
    """Whether an attribute with such a name may be what is not compared."""
    special = attribute.startswith("__") and attribute.endswith("__") and attribute not in _PLAIN
    return special or attribute in _LEADING


def _doubts_of(attribute: str, before: dis.Instruction | None = None) -> list[str]:
    """Why an attribute is doubted; `"{0.shape}".format` is not: the text in front tells what it
    asks for."""
    names = [attribute]
    if attribute in ("format", "format_map") and before and before.opname == "LOAD_CONST":
        names = re.findall(r"\.(\w+)", str(before.argval))
    return [f"{name} leads to what is not compared" for name in names if leads_elsewhere(name)]


def _doubts_of_pattern(step: dis.Instruction, before: dis.Instruction) -> list[str]:
    """Why `case Name(positions, attribute=...)` is doubted."""
    names = before.argval if before.opname == "LOAD_CONST" else ("__match_args__",)
    return [
        doubt for name in ("__match_args__",) * bool(step.arg) + names for doubt in _doubts_of(name)
    ]

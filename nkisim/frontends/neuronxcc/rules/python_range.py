"""Loops over Python's `range` that need it to count in Python.

AWS says that "any use of Python range(...) will be replaced with sequential_range(...) by Neuron
compiler" (nl.sequential_range and the NKI programming model, SDK 2.26): its body is traced once,
with an index that stands for all values. Here Python runs such a loop, so that a kernel works that
does not on a device. `nl.static_range` is the loop that is documented to be unrolled.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nkisim.errors import CounterError, Location
from nkisim.frontends.neuronxcc.rules.counters import counted
from nkisim.trace.sources import codes_in, definition

_LIBRARIES = ("nkisim", "neuronxcc", "numpy", "builtins", "torch", "jax", "math", "functools")
# Builtins that take numbers known while tracing, and functions whose arguments are sizes.
_NUMERIC = frozenset(
    {"min", "max", "int", "float", "bool", "len", "divmod", "range", "abs", "round"}
)
_SIZED = frozenset(
    {"arange", "ndarray", "zeros", "ones", "full", "empty", "static_range", "affine_range"}
    | {"sequential_range", "ds", "iota"}
)
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.IfExp, ast.Tuple, ast.Compare)
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def check_ranges(kernel: Callable) -> Iterator[CounterError]:
    """An error for each loop over `range`, in a kernel and in the functions with NKI in them that
    it calls, whose index is used as a number, or that keeps values of Python from one iteration to
    the next. A function that computes with numbers alone is not looked at: what the compiler makes
    of that is documented nowhere."""
    seen: set[CodeType] = set()
    left = [kernel]
    while left:
        function = _function(left.pop())
        if function is None or function.__code__ in seen:
            continue
        code = function.__code__
        seen.add(code)
        names = _names_of(function)
        left += _called(function, names)
        if function is not _function(kernel) and not _uses_nki(code, names):
            continue
        for line, why in _needing(code):
            yield CounterError(
                f"a loop over Python's range {why}",
                rule="AWS's compiler turns a loop over range into nl.sequential_range, whose body "
                "is traced once, for all iterations, with an index that is no number; this "
                "simulator runs the loop in Python",
                fix="loop over nl.static_range, which is unrolled",
                location=Location(code.co_filename, line, code.co_name),
            )


def _function(value: Any) -> FunctionType | None:
    """The function of the user's behind a function or a kernel."""
    value = getattr(value, "func", value)
    if not isinstance(value, FunctionType):
        return None
    return None if (value.__module__ or "").partition(".")[0] in _LIBRARIES else value


def _names_of(function: FunctionType) -> dict[str, Any]:
    """The globals and closure variables of a function, by name."""
    names = dict(function.__globals__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # an empty one
            names[name] = cell.cell_contents
    return names


def _uses_nki(code: CodeType, names: dict[str, Any]) -> bool:
    used = {name for c in codes_in(code) for name in (*c.co_names, *c.co_freevars)}
    return any(
        (getattr(names.get(name), "__module__", None) or getattr(names.get(name), "__name__", ""))
        .partition(".")[0]
        .startswith(("neuronxcc", "nkisim"))
        for name in used
    )


def _called(function: FunctionType, names: dict[str, Any]) -> Iterator[Any]:
    """The functions that a function calls by name, as far as names tell."""
    tree = definition(function.__code__)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Subscript):  # a kernel with its grid
                called = called.value
            if isinstance(called, ast.Name):
                yield names.get(called.id)
            elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                module = names.get(called.value.id)
                if isinstance(module, ModuleType):
                    yield getattr(module, called.attr, None)


@functools.lru_cache(maxsize=1024)
def _needing(code: CodeType) -> tuple[tuple[int, str], ...]:
    """Lines of loops over `range` that need Python to run them, and why."""
    tree = definition(code)
    if tree is None:
        return ()
    lists = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List | ast.ListComp | ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            why = _why(code, node, lists)
            if why:
                found.append((node.lineno, why))
    return tuple(found)


def _why(code: CodeType, loop: Any, lists: set[str]) -> str:
    """Why a loop needs Python to run it; empty if it does not, or is none over `range`."""
    if isinstance(loop, ast.For):
        if not _is_range(loop.iter):
            return ""
        index = _names(loop.target, ast.Store)
        body: list[ast.AST] = list(loop.body)
    else:
        ranges = [g for g in loop.generators if _is_range(g.iter)]
        if not ranges:
            return ""
        index = {name for g in ranges for name in _names(g.target, ast.Store)}
        body = [c for g in loop.generators for c in g.ifs]
        body += [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]
        if any(_names(part, ast.Load) & index for part in body):
            return "makes a value of Python for each index"
        return ""
    numbers = _numbers(body, index)
    nodes = [node for statement in body for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.If | ast.IfExp | ast.While) and _names(node.test) & numbers:
            return f"decides on `{ast.unparse(node.test)}`, which its index is in"
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
            given = [*node.args, *(k.value for k in node.keywords)]
            used = set().union(*(_names(part) for part in given)) & numbers
            if used and isinstance(node.func, ast.Name) and name in _NUMERIC:
                return f"takes its index as a number, in `{ast.unparse(node)}`"
            if name in ("append", "extend", "insert") and isinstance(node.func, ast.Attribute):
                return f"keeps values in a list, by `{ast.unparse(node.func)}`"
            sizes = given[:1] if name == "ndarray" else given[1:2] if name == "ds" else given
            if name in _SIZED and any(_names(part) & numbers for part in sizes):
                return f"makes a size of its index, in `{ast.unparse(node)}`"
        if isinstance(node, ast.Subscript) and _name(node.value) in lists:
            if _names(node.slice) & numbers:
                return f"takes its index as a number, in `{ast.unparse(node)}`"
            if isinstance(node.ctx, ast.Store):
                return f"keeps values in `{ast.unparse(node.value)}`"
    kept = _kept(code, loop, nodes)
    return f"keeps `{kept}` from one iteration to the next" if kept else ""


def _kept(code: CodeType, loop: ast.For, nodes: list[ast.AST]) -> str:
    """A variable that an iteration reads as the one before has left it. What a tile adds up in
    place is none: `total += nl.load(x)` writes the tile."""
    own = _names(loop.target, ast.Store)
    for name in counted(code, loop.lineno) or ():
        anew = any(isinstance(n, ast.Assign) and name in _targets(n) for n in nodes)
        counts = any(isinstance(n, ast.AugAssign) and _name(n.target) == name for n in nodes)
        if name not in own and (anew or (counts and name in _begun_as_numbers(code))):
            return name
    return ""


@functools.lru_cache(maxsize=1024)
def _begun_as_numbers(code: CodeType) -> frozenset[str]:
    """Names that a function sets by arithmetic somewhere, as to 0."""
    tree = definition(code)
    found = set()
    for node in ast.walk(tree) if tree is not None else ():
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            found |= {_name(name) for name, value in pairs if _arithmetic(value)}
    return frozenset(found)


def _numbers(body: list[ast.AST], index: set[str]) -> set[str]:
    """The index, and names that are computed from it by arithmetic alone."""
    numbers = set(index)
    for statement in body:
        for node in ast.walk(statement):
            known = isinstance(node, ast.Assign) and _arithmetic(node.value)
            if known and _names(node.value) & numbers:
                numbers |= _targets(node)
    return numbers


def _arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) in _NUMERIC
    if not isinstance(node, _ARITHMETIC):
        return False
    return all(_arithmetic(x) for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr))


def _is_range(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and _name(node.func) in ("enumerate", "reversed", "zip"):
        return any(map(_is_range, node.args))
    return isinstance(node, ast.Call) and _name(node.func) == "range"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.AST, how: type = ast.expr_context) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, how)}


def _targets(node: ast.Assign) -> set[str]:
    return {name for target in node.targets for name in _names(target, ast.Store)}

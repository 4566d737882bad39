"""Python that runs here, in a kernel of `import nki`, and that NKI 0.6 refuses: warnings.

The compiler of SDK 2.32 reads a kernel's syntax tree and takes a subset of Python: the NKI language
guide of that SDK, and messages of the compiler that users report.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from nkisim.errors import Location, ParameterError, UnsupportedError, warn
from nkisim.frontends.dialect import Call, Decorated
from nkisim.trace import sources


def warn_of_python(call: Call) -> None:
    """Warns of what NKI 0.6 refuses: in a kernel's head, and at its line in its body and in
    the functions that it names or is given. Of each kind the first in a function."""
    arguments, place = call.bound.arguments, call.place
    for name, parameter in call.bound.signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            warn(
                ParameterError(
                    f"{name} of kernel {call.name} is a keyword-only argument",
                    rule="NKI 0.6 has no keyword-only arguments; NKI 0.7 and this simulator have",
                    fix="leave out the * before it",
                    location=place,
                )
            )
        elif isinstance(arguments.get(name), list):
            warn(
                ParameterError(
                    f"argument {name} of kernel {call.name} is a list",
                    rule="NKI 0.6 takes no lists as arguments; NKI 0.7 and this simulator do",
                    fix="pass a tuple",
                    location=place,
                )
            )
    for function, called in _functions(call.func, arguments.values()):
        of = function.__code__
        name = f"kernel {call.name}"
        if called:
            name = f"{function.__qualname__}, which {name} calls,"
        for statement, line, fix in _refused_in(of):
            rule = (
                f"NKI 0.6 takes a subset of Python, without '{statement}'; NKI 0.7 and this "
                "simulator run it"
            )
            if statement in _IDENTITY:
                rule += (
                    ". AWS's migration guide to NKI 0.3 says so; kernels of its nki-library "
                    "compare with None this way all the same"
                )
            warn(
                UnsupportedError(
                    f"{name} has a '{statement}' {_KINDS.get(statement, 'statement')}",
                    rule=rule,
                    fix=fix,
                    location=Location(of.co_filename, line, of.co_name),
                )
            )


_IDENTITY = ("is", "is not")
_KINDS = dict.fromkeys(_IDENTITY, "comparison")
_WHOLE = 200  # functions that are looked at


def _functions(
    kernel: Callable, arguments: Iterable[Any] = ()
) -> Iterator[tuple[FunctionType, bool]]:
    """A kernel's function, and those that it names, gets as arguments or calls as methods of its
    classes, however deep; each with whether it is called. Those of packages that kernels import
    are not theirs."""
    waiting: list[Any] = [*(x for x in arguments if not isinstance(x, type)), kernel]
    seen: set[Any] = set()
    while waiting and len(seen) < _WHOLE:
        function = waiting.pop()
        if isinstance(function, functools.partial | Decorated):
            function = function.func
        if isinstance(function, MethodType):
            function = function.__func__
        if isinstance(function, type) and function not in seen and not _is_of_a_library(function):
            seen.add(function)
            waiting += [_of_class(f) for f in vars(function).values()]
        if not isinstance(function, FunctionType) or function.__code__ in seen:
            continue
        if function is not kernel and _is_of_a_library(function):
            continue
        yield function, function is not kernel
        seen.add(function.__code__)
        waiting += [d for d in function.__defaults__ or () if not isinstance(d, type)]
        called = _called(function.__code__)
        for name in _named(function.__code__):
            found = _found(function, name)
            if name in called or not isinstance(found, type):
                waiting.append(found)


def _of_class(member: Any) -> Any:
    """The function of a method, however it is bound."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def _is_of_a_library(function: FunctionType | type) -> bool:
    package = (function.__module__ or "").partition(".")[0]
    return package in ("nkisim", "numpy", "ml_dtypes") or package in sys.stdlib_module_names


@functools.lru_cache(maxsize=1024)
def _named(code: CodeType) -> tuple[str, ...]:
    """The names in a function, dotted."""
    definition = sources.definition(code)
    parts = () if definition is None else ast.walk(definition)
    return tuple(dict.fromkeys(ast.unparse(n) for n in parts if _is_name(n)))


@functools.lru_cache(maxsize=1024)
def _called(code: CodeType) -> frozenset[str]:
    """The functions that it calls."""
    definition = sources.definition(code)
    parts = () if definition is None else ast.walk(definition)
    calls = [n.func for n in parts if isinstance(n, ast.Call)]
    return frozenset(ast.unparse(f) for f in calls if _is_name(f))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )


def _found(function: FunctionType, name: str) -> Any:
    """The object that a name, or `module.name`, has in a function; None if the name is local."""
    first, _, rest = name.partition(".")
    if first in function.__code__.co_varnames + function.__code__.co_cellvars:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    try:
        found = cells[first].cell_contents if first in cells else function.__globals__.get(first)
    except ValueError:  # a cell that is still empty
        return None
    if not rest:
        return found
    if not isinstance(found, ModuleType | type):
        return None
    return _of_class(vars(found).get(rest))


@functools.lru_cache(maxsize=1024)
def _refused_in(code: CodeType) -> tuple[tuple[str, int, str], ...]:
    """The first of each kind of what the compiler refuses in a function."""
    definition = sources.definition(code)
    first: dict[str, tuple[str, int, str]] = {}
    for refused in () if definition is None else _refused(definition):
        first.setdefault(refused[0], refused)
    return tuple(first.values())


_OUTSIDE = "do outside the kernel what needs it"
_STATEMENTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Raise: ("raise", "use assert, or if and else"),
    ast.Try: ("try", "test the condition with if before"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.Match: ("match", "use if, elif and else"),
    ast.Global: ("global", "pass the value as an argument, and return it"),
    ast.Nonlocal: ("nonlocal", "pass the value as an argument, and return it"),
    ast.Delete: ("del", "leave it out; d.pop(key) removes an entry of a dictionary"),
    ast.ClassDef: ("class", "declare it outside the kernel, with nl.NKIObject as its base"),
    ast.AsyncFunctionDef: ("async", _OUTSIDE),
    ast.AsyncFor: ("async", _OUTSIDE),
    ast.AsyncWith: ("async", _OUTSIDE),
    ast.Await: ("async", _OUTSIDE),
}


def _refused(definition: ast.AST) -> Iterator[tuple[str, int, str]]:
    """The statements that NKI 0.6 refuses: name, line, and fix of each. The language guide
    and the migration guide of SDK 2.32, and messages of the compiler that users report."""
    for node in ast.walk(definition):
        if isinstance(node, ast.stmt | ast.expr) and type(node) in _STATEMENTS:
            name, fix = _STATEMENTS[type(node)]
            yield name, node.lineno, fix
        elif isinstance(node, ast.With) and not all(map(_is_region, node.items)):
            yield "with", node.lineno, _OUTSIDE
        elif isinstance(node, ast.Compare):
            for op in node.ops:
                if isinstance(op, ast.Is | ast.IsNot):
                    same = isinstance(op, ast.Is)
                    fix = "write ==" if same else "write !="
                    yield "is" if same else "is not", node.lineno, fix


def _is_region(item: ast.withitem) -> bool:
    """Whether a `with` opens `nl.no_reorder()`, which is part of the language."""
    called = item.context_expr
    return isinstance(called, ast.Call) and ast.unparse(called.func).endswith("no_reorder")

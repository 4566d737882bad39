"""Loop-carried numbers of Python: to the compiler, each iteration begins with the same ones.

The compiler traces the body of an `nl.affine_range` or `nl.sequential_range` loop once. Here the
body runs for each iteration, so numbers that one iteration has changed are set back in front of the
next one. An address that a kernel counts up to place its tiles then is that of the first iteration,
as the kernel means it to be; so is a row number that it counts up, which is hardly meant, and is
reported.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FrameType, FunctionType, NoneType
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import CounterError
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.ir.loops import Loop
from nkisim.trace.frames import set_local
from nkisim.trace.sources import definition

_NUMBERS = (int, float, np.number)
_KNOWN = (*_NUMBERS, Mask)  # while tracing, which tiles are not


class Counters:
    """The loop-carried variables of a function, with their values in front of the loop.

    They are numbers and masks, which are known while tracing, and None in the place of a mask.

    Args:
        frame: of the function that loops.
        loop: one that the compiler does not unroll.
    """

    def __init__(self, frame: FrameType, loop: Loop) -> None:
        self._frame = frame
        self._loop = loop
        self._at = frame.f_code, frame.f_lineno
        names = counted(*self._at)
        values = {} if names == () else frame.f_locals
        # Where the source is not known, those that are set anew are among them, which is no harm.
        self._before = {
            name: values[name]
            for name in (values if names is None else names)
            if name in values and isinstance(values[name], (*_KNOWN, NoneType))
        }
        self._held: list[_HeldNumber] = []
        self._iterators: dict[str, Iterator] = {}
        for name, is_iterator in handled(*self._at):
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            if is_iterator and isinstance(value, _COPIED) and name in frame.f_locals:
                self._iterators[name] = copy.copy(value)
            elif value is not None:
                # What the loop sets by name is new in each iteration, or is looked at above.
                own = set_by(*self._at) if isinstance(value, FunctionType) else ()
                self._held += [held for held in _held(name, value) if held.text not in own]

    def take_back(self) -> CounterError | None:
        """Set all variables to their values in front of the loop.

        Returns:
            An error if one is a number, and the kernel does more with it than to place tiles.
        """
        inside = self._take_back_inside()
        if not self._before:
            return inside
        values = self._frame.f_locals
        changed = {
            name: values[name]
            for name, before in self._before.items()
            if isinstance(values.get(name), _KNOWN) and _differ(before, values[name])
        }
        for name in changed:
            set_local(self._frame, name, self._before[name])
        used = [
            name
            for name in changed
            if isinstance(self._before[name], _NUMBERS) and name in used_besides_placing(*self._at)
        ]
        if not used:
            return inside
        return self._error(used[0], self._before[used[0]], changed[used[0]])

    def _take_back_inside(self) -> CounterError | None:
        """Take back loop-carried numbers inside lists, dicts, small arrays, objects and closures,
        and iterators. Returns an error as `take_back` does."""
        error = None
        used = used_besides_placing(*self._at) if self._held or self._iterators else ()
        for held in self._held:
            now = held.read()
            if isinstance(now, _NUMBERS) and now != held.before:
                held.write(held.before)
                if error is None and held.name in used:
                    error = self._error(held.text, held.before, now)
        for name, iterator in self._iterators.items():
            left = operator.length_hint(self._frame.f_locals.get(name, iterator))
            if left == operator.length_hint(iterator):
                continue
            set_local(self._frame, name, copy.copy(iterator))
            if error is None:
                error = self._error(f"what is left of {name}", operator.length_hint(iterator), left)
        return error

    def _error(self, name: str, before: object, after: object) -> CounterError:
        kind = self._loop.kind
        return CounterError(
            f"{name} is {before} in front of an nl.{kind} loop, and an iteration makes it "
            f"{after}: the next one does not see that",
            rule=f"the compiler traces the body of nl.{kind} once, for all iterations, "
            "with the numbers that Python has in front of the loop",
            fix=f"compute {name} from the loop index, or loop over nl.static_range, "
            "which is unrolled",
            location=self._loop.location,
        )


class _HeldNumber(NamedTuple):
    """A number that an object holds.

    Attributes:
        name: of the variable that the object is reached by.
        text: how the number is written.
        read, write: get it, and set it.
        before: what it is in front of the loop.
    """

    name: str
    text: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    before: Any


_FEW = 64  # numbers of one object
_COPIED = tuple(map(type, (iter([]), iter(()), iter(range(0)))))


def _held(name: str, value: object) -> list[_HeldNumber]:
    """The numbers that a list, a dict, a small array, an object or a closure holds."""
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return [
            _HeldNumber(name, variable, *_of_a_cell(cell), cell.cell_contents)
            for variable, cell in cells
            if isinstance(_of_a_cell(cell)[0](), _NUMBERS)
        ]
    if isinstance(value, list | dict):
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        written = [(key, f"{name}[{key!r}]") for key, x in items if isinstance(x, _NUMBERS)]
        holder: Any = value
    elif isinstance(value, np.ndarray):
        holder = value.reshape(-1)  # a view, of those that are contiguous
        if value.dtype.kind not in "iuf" or holder.base is None or value.size > _FEW:
            return []
        written = [(at, f"{name}.flat[{at}]") for at in range(value.size)]
    elif type(value).__module__.partition(".")[0] in _LIBRARIES or isinstance(value, type):
        return []
    else:
        holder = getattr(value, "__dict__", {})
        if not isinstance(holder, dict):
            return []
        written = [(key, f"{name}.{key}") for key, x in holder.items() if isinstance(x, _NUMBERS)]
    if len(written) > _FEW:
        return []
    return [
        _HeldNumber(
            name,
            text,
            functools.partial(_item, holder, key),
            functools.partial(operator.setitem, holder, key),
            _item(holder, key),
        )
        for key, text in written
    ]


_LIBRARIES = ("nkisim", "neuronxcc", "numpy", "builtins", "torch", "jax")


def _item(holder: Any, key: Any) -> Any:
    """An element; None when it is gone."""
    try:
        found = holder[key]
    except (KeyError, IndexError):
        return None
    return found.item() if isinstance(holder, np.ndarray) else found


def _of_a_cell(cell: CellType) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # an empty one
            return None

    return read, functools.partial(setattr, cell, "cell_contents")


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, _NUMBERS) and isinstance(after, _NUMBERS):
        return bool(before != after)
    return before is not after


# -- which names a loop counts, told from the source


@functools.lru_cache(maxsize=1024)
def counted(code: CodeType, line: int) -> tuple[str, ...] | None:
    """The names that an iteration of a loop reads as the one before has left them: before it sets
    them in any case, or to make what it sets them to. None where the source is not known.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    nest = _loop_at(code, line)
    if nest is None:
        return None
    flow = _Flow()
    flow.visit(nest[-1].target)
    flow.run(nest[-1].body)
    handed_on = flow.stored & flow.exposed
    if not handed_on:
        return ()
    read: set[str] = set()
    maybe_set: set[str] = set()
    for statement in nest[-1].body:
        read |= _read_at_first(statement) - maybe_set
        maybe_set |= _flow_of(statement).stored
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                read.add(node.target.id)
            elif isinstance(node, ast.Assign):
                read |= _targets(node) & _loaded(node.value)
    return tuple(sorted(handed_on & read))


@functools.lru_cache(maxsize=1024)
def handled(code: CodeType, line: int) -> tuple[tuple[str, bool], ...]:
    """The names of objects that a loop may change: that it sets parts of, calls, or calls methods
    of; each with whether it is an argument of `next`. Nothing where the source is not known."""
    nest = _loop_at(code, line)
    found: dict[str, bool] = {}
    for statement in () if nest is None else nest[-1].body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                found.setdefault(_root(node), False)
            elif isinstance(node, ast.Call):
                found.setdefault(_root(node.func), False)
                if isinstance(node.func, ast.Name) and node.func.id == "next" and node.args:
                    found[_root(node.args[0])] = True
    return tuple([(name, of_next) for name, of_next in found.items() if name])


@functools.lru_cache(maxsize=1024)
def set_by(code: CodeType, line: int) -> frozenset[str]:
    """The names that a loop sets."""
    nest = _loop_at(code, line)
    if nest is None:
        return frozenset()
    flow = _Flow()
    flow.visit(nest[-1].target)
    flow.run(nest[-1].body)
    return frozenset(flow.stored)


def _root(node: ast.AST) -> str:
    """The name that an expression of attributes and subscripts begins with; empty if none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _read_at_first(statement: ast.stmt) -> set[str]:
    """Names that a statement reads before it does anything else."""
    if isinstance(statement, ast.If | ast.While):
        return _loaded(statement.test)
    if isinstance(statement, ast.For):
        return _loaded(statement.iter)
    if isinstance(statement, ast.With | ast.Try | ast.TryStar | ast.Match):
        return set()
    return _flow_of(statement).exposed


def _loaded(node: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {t.id for t in targets if isinstance(t, ast.Name)}


@functools.lru_cache(maxsize=1024)
def used_besides_placing(code: CodeType, line: int) -> frozenset[str]:
    """The names that a loop, or what follows it, uses for other than to count on, to place tiles
    and to talk about it.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    nest = _loop_at(code, line)
    if nest is None:
        return frozenset()
    outermost = next(at for at, node in enumerate(nest) if isinstance(node, ast.For))
    statements = [nest[outermost]]
    for parent, child in itertools.pairwise(nest[: outermost + 1]):
        statements += _behind(parent, child)
    found: set[str] = set()

    def look(node: ast.AST, besides: set[str]) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.update({node.id} - besides)
        if isinstance(node, ast.Assert | ast.JoinedStr) or _places(node):
            return
        if isinstance(node, ast.Assign | ast.AugAssign):
            besides = _targets(node)
        for child in ast.iter_child_nodes(node):
            look(child, besides)

    for statement in statements:
        look(statement, set())
    return frozenset(found.union(code.co_cellvars))  # those may be read elsewhere


_PLACING = ("buffer", "base_addr", "base_bank", "base_partition")  # keywords


def _places(node: ast.AST) -> bool:
    """Whether a call places tiles (neuronxcc.nki.compiler), or prints."""
    if isinstance(node, ast.keyword):
        return node.arg in _PLACING
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("alloc", "mod_alloc", "print")


def _behind(parent: ast.AST, child: ast.AST) -> list[ast.stmt]:
    """The statements behind one, in the block that it is in."""
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and child in block:
            return block[block.index(child) + 1 :]
    return []


def _loop_at(code: CodeType, line: int) -> list[ast.AST] | None:
    """The loop whose `for` is on a line of a function, and what it is in, from the function on;
    None where the source is not known, or does not tell."""
    nests = [nest for nest in _loops(code) if _begins_at(nest[-1], line)]
    return nests[0] if len(nests) == 1 else None


@functools.lru_cache(maxsize=64)
def _loops(code: CodeType) -> list[list[ast.AST]]:
    """The loops in the source of a function, each with what it is in."""
    function = definition(code)
    found: list[list[ast.AST]] = []

    def look(nest: list[ast.AST]) -> None:
        if isinstance(nest[-1], ast.For):
            found.append(nest)
        for child in ast.iter_child_nodes(nest[-1]):
            if not isinstance(child, ast.expr):  # none has a loop in it
                look([*nest, child])

    if function is not None:
        look([function])
    return found


def _begins_at(loop: ast.For, line: int) -> bool:
    return loop.lineno <= line <= (loop.iter.end_lineno or loop.lineno)


class _Flow:
    """Goes through statements in order. As `ast.NodeVisitor`, which takes twice the time.

    Attributes:
        stored: names that are set.
        set: those that are in any case, up to here.
        exposed: those that may be read before.
    """

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.set: set[str] = set()
        self.exposed: set[str] = set()

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            flow = _flow_of(statement)
            self.exposed |= flow.exposed - self.set
            self.stored |= flow.stored
            self.set |= flow.set

    def visit(self, node: ast.AST) -> None:
        kind = type(node)
        visitor = _VISITORS.get(kind)
        if visitor is not None:
            visitor(self, node)
            return
        for field in _fields(kind):
            value = getattr(node, field, None)
            if type(value) is list:
                for x in value:
                    if isinstance(x, ast.AST):
                        self.visit(x)
            elif isinstance(value, ast.AST):
                self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        pass

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.stored.add(node.id)
            self.set.add(node.id)
        elif node.id not in self.set:
            self.exposed.add(node.id)

    def visit_alias(self, node: ast.alias) -> None:  # of an import
        name = node.asname or node.name.partition(".")[0]
        self.stored.add(name)
        self.set.add(name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.set:
            self.exposed.add(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = set(self.set)
        self.run(node.body)
        after, self.set = self.set, before
        self.run(node.orelse)
        self.set &= after

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        before = set(self.set)
        self.visit(node.target)
        self.run(node.body)
        self.set = before
        self.run(node.orelse)
        self.set = before

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._perhaps([*node.body, *node.orelse])

    def visit_Try(self, node: ast.Try) -> None:
        handlers = [s for handler in node.handlers for s in handler.body]
        self._perhaps([*node.body, *handlers, *node.orelse, *node.finalbody])

    visit_TryStar = visit_Try

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self._perhaps(case.body)

    def _perhaps(self, statements: list[ast.stmt]) -> None:
        before = set(self.set)
        self.run(statements)
        self.set = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inner(node)
        self.stored.add(node.name)
        self.set.add(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node)

    def visit_ListComp(self, node: ast.AST) -> None:
        self._inner(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _inner(self, node: ast.AST) -> None:
        """A scope of its own may read any name, and set those that it calls nonlocal."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Nonlocal | ast.Global):
                self.exposed.update(inner.names)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self.visit_Name(inner)


_VISITORS = {
    getattr(ast, name.removeprefix("visit_")): visitor
    for name, visitor in vars(_Flow).items()
    if name.startswith("visit_")
}


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that may have names inside."""
    return tuple([name for name in kind._fields if name not in ("ctx", "op", "ops")])


@functools.lru_cache(maxsize=16384)
def _flow_of(statement: ast.stmt) -> _Flow:
    """A statement by itself: it is part of each loop around it, and of what is behind others."""
    flow = _Flow()
    flow.visit(statement)
    return flow

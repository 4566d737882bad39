"""What iterations of a loop hand on to each other, and to what follows, by the names they set: told
from the source of the kernel.

An iteration that reads a name before it sets it sees what earlier iterations left there.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Mapping
from types import CodeType
from typing import NamedTuple

from nkisim.trace.sources import original_of, source_of


class Names(NamedTuple):
    """What the body of a loop sets.

    Attributes:
        anew: names that it sets before it reads them, in any case.
        handed_on: names that it may read before, as the iteration before has left them.
        attributes: those of names that it sets, by their text.
        changed: names of what it may change: tensors, or containers of Python.
    """

    anew: frozenset[str]
    handed_on: tuple[str, ...]
    attributes: Mapping[str, ast.Attribute]
    changed: tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def names_set(code: CodeType, line: int) -> Names | None:
    """The names that the body of a loop sets; None where the source is not known.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    nest = _loop_at(code, line)
    if nest is None:
        return None
    flow = _iteration(nest[-1])
    return Names(
        frozenset(flow.stored - flow.exposed),
        tuple(sorted(flow.stored & flow.exposed)),
        flow.attributes,
        tuple(sorted(flow.changed)),
    )


@functools.lru_cache(maxsize=1024)
def iterated(code: CodeType, line: int) -> ast.expr | None:
    """What a loop goes over; None where the source is not known.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    nest = _loop_at(code, line)
    return None if nest is None else nest[-1].iter


@functools.lru_cache(maxsize=1024)
def counted(code: CodeType, line: int) -> tuple[str, ...] | None:
    """The names that an iteration of a loop reads as the one before has left them: before it sets
    them in any case, or to make what it sets them to. None where the source is not known.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    names = names_set(code, line)
    if names is None:
        return None
    if not names.handed_on:
        return ()
    read: set[str] = set()
    maybe_set: set[str] = set()
    for statement in _loop_at(code, line)[-1].body:
        read |= _read_at_first(statement) - maybe_set
        maybe_set |= _flow_of(statement).stored
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                read.add(node.target.id)
            elif isinstance(node, ast.Assign):
                read |= _targets(node) & _loaded(node.value)
    return tuple([name for name in names.handed_on if name in read])


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
    return frozenset(found.union(original_of(code).co_cellvars))  # those may be read elsewhere


_PLACING = ("buffer", "base_addr", "base_bank", "base_partition")  # keywords


def _places(node: ast.AST) -> bool:
    """Whether it places tiles (neuronxcc.nki.compiler), or prints."""
    if isinstance(node, ast.keyword):
        return node.arg in _PLACING
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("alloc", "mod_alloc", "print")


class Carried(NamedTuple):
    """What an iteration of a loop may leave behind in Python.

    Attributes:
        dead: names that it sets, and that nobody reads before they are set again.
        kept: the other names that it sets.
        changed: names of what it may change: tensors, or containers of Python.
    """

    dead: frozenset[str]
    kept: tuple[str, ...]
    changed: tuple[str, ...]


# Where control flow or assignments are more than is followed here.
_UNFOLLOWED = frozenset(
    {ast.Break, ast.Continue, ast.Try, ast.TryStar, ast.Match, ast.While}
    | {ast.Delete, ast.ClassDef, ast.NamedExpr}
    | {ast.Nonlocal, ast.Global, ast.Yield, ast.YieldFrom, ast.Await}
)
# Methods that change what they are called of.
_CHANGING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop"}
    | {"popitem", "popleft", "remove", "reverse", "setdefault", "sort", "update"}
)


@functools.lru_cache(maxsize=1024)
def carried(code: CodeType, line: int) -> Carried | None:
    """What an iteration of a loop may leave behind in Python; None if that is hard to tell.

    Args:
        code: of the function that has the loop.
        line: of the `for`.
    """
    nest = _loop_at(code, line)
    if nest is None or not _can_be_followed(original_of(code)):
        return None
    loop = nest[-1]
    flow = _iteration(loop)
    if not flow.is_clear:
        return None
    after = _Flow()
    for parent, child in zip(nest[-2::-1], nest[:0:-1], strict=True):
        after.run(_behind(parent, child))
        if isinstance(parent, ast.For):
            after.visit(parent)
    read = flow.exposed | after.exposed | set(code.co_cellvars)
    dead = flow.stored - read
    kept = flow.stored - dead
    return Carried(frozenset(dead), tuple(sorted(kept)), tuple(sorted(flow.changed)))


def _iteration(loop: ast.For) -> _Flow:
    flow = _Flow()
    flow.visit(loop.target)
    flow.run(loop.body)
    return flow


def _behind(parent: ast.AST, child: ast.AST) -> list[ast.stmt]:
    """The statements behind one, in the block that it is in."""
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and child in block:
            return block[block.index(child) + 1 :]
    return []


def _loop_at(code: CodeType, line: int) -> list[ast.AST] | None:
    """The loop whose `for` is on a line of a function, and what it is in, from the function on;
    None where the source is not known, or does not tell."""
    code = original_of(code)
    at = line - code.co_firstlineno + 1
    nests = [nest for nest in _loops(code) if _begins_at(nest[-1], at)]
    return nests[0] if len(nests) == 1 else None


@functools.lru_cache(maxsize=64)
def _loops(code: CodeType) -> list[list[ast.AST]]:
    """The loops in the source of a function, each with what it is in."""
    try:
        tree = ast.parse(source_of(code) or "")
    except SyntaxError:
        return []
    found: list[list[ast.AST]] = []

    def look(nest: list[ast.AST]) -> None:
        if isinstance(nest[-1], ast.For):
            found.append(nest)
        for child in ast.iter_child_nodes(nest[-1]):
            if not isinstance(child, ast.expr):  # none has a loop in it
                look([*nest, child])

    look([tree])
    return found


@functools.lru_cache(maxsize=64)
def _can_be_followed(code: CodeType) -> bool:
    """Whether a function, one with loops, has nothing in it that is more than is followed here."""
    module, outermost, *_ = _loops(code)[0]
    flow = _Flow()
    flow.run(outermost.body if isinstance(outermost, ast.FunctionDef) else module.body)
    return flow.is_followed


def _begins_at(loop: ast.For, line: int) -> bool:
    return loop.lineno <= line <= (loop.iter.end_lineno or loop.lineno)


class _Flow:
    """Goes through statements in order. As `ast.NodeVisitor`, which takes twice the time.

    Attributes:
        stored: names that are set.
        set: those that are in any case, up to here.
        exposed: those that may be read before.
        changed: names of what may be changed: see Carried.
        attributes: those that are set, by their text.
        is_clear: whether those are all that may be.
        is_followed: whether there is nothing that is more than is followed here.
    """

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.set: set[str] = set()
        self.exposed: set[str] = set()
        self.changed: set[str] = set()
        self.attributes: dict[str, ast.Attribute] = {}
        self.is_clear = self.is_followed = True

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            flow = _flow_of(statement)
            self.exposed |= flow.exposed - self.set
            self.stored |= flow.stored
            self.set |= flow.set
            self.changed |= flow.changed
            self.attributes |= flow.attributes
            self.is_clear &= flow.is_clear
            self.is_followed &= flow.is_followed

    def visit(self, node: ast.AST) -> None:
        kind = type(node)
        if kind in _UNFOLLOWED:
            self.is_followed = False
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

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._look_for_change(node)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._look_for_change(node)
        self.visit(node.value)
        self.visit(node.slice)

    def _look_for_change(self, node: ast.Attribute | ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Subscript) or node.attr not in _CHANGING:
                return
        elif isinstance(node, ast.Attribute):
            self.is_clear = False
            self.attributes[ast.unparse(node)] = node
            return
        base = node.value
        while isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            self.changed.add(base.id)
        else:
            self.is_clear = False

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
            if type(inner) in _UNFOLLOWED:
                self.is_followed = False
            if isinstance(inner, ast.Nonlocal | ast.Global):
                self.exposed.update(inner.names)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self.visit_Name(inner)
            elif isinstance(inner, ast.Attribute | ast.Subscript):
                self._look_for_change(inner)


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

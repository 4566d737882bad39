"""Which names an iteration of a loop sets anew, told from the source of the kernel.

An iteration that reads a name before it sets it sees what earlier iterations left there.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import CodeType


@functools.lru_cache(maxsize=1024)
def set_anew(code: CodeType, line: int) -> frozenset[str]:
    """The names that the body of a loop sets, and always before it reads them.

    Args:
        code: of the function that has the loop.
        line: of the `for`.

    Returns:
        No names where the source is not known.
    """
    at = line - code.co_firstlineno + 1
    loops = [loop for loop in _loops(code) if _begins_at(loop, at)]
    if len(loops) != 1:
        return frozenset()
    flow = _Flow()
    flow.visit(loops[0].target)
    flow.run(loops[0].body)
    return frozenset(flow.stored - flow.exposed)


@functools.lru_cache(maxsize=64)
def _loops(code: CodeType) -> list[ast.For]:
    """Those in the source of a function; none where that is not known."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.For)]


def _begins_at(loop: ast.For, line: int) -> bool:
    return loop.lineno <= line <= (loop.iter.end_lineno or loop.lineno)


class _Flow(ast.NodeVisitor):
    """Goes through statements in order.

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
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.stored.add(node.id)
            self.set.add(node.id)
        elif node.id not in self.set:
            self.exposed.add(node.id)

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

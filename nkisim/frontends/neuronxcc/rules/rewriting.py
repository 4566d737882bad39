"""What NKI's Python means that plain Python does not: kernels compiled once more from their source.

Four things in a kernel never reach code that could be ours. Python evaluates no annotation of a
local variable, so that `x: tensor[128, 512] = nl.load(a)` would pass unchecked; `a and b` of two
masks would be `b`; `a & b if a else b` means to ask whether there is a mask a, not what a condition
on loop indices says; and nobody is told of a loop over Python's `range`, which a profile need not
trace as a whole (see nkisim.trace.rolling). All become calls. Line numbers stay, so debuggers and
error messages see the same kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

from nkisim.errors import IndexingError, warn
from nkisim.frontends.neuronxcc.rules.annotations import check_variable
from nkisim.frontends.neuronxcc.tensors.index import Mask, as_int
from nkisim.trace.loop_index import LoopIndex
from nkisim.trace.sources import compiled_again, source_of
from nkisim.trace.tracer import current, tracing

_FUTURE_ANNOTATIONS = annotations.compiler_flag

# A kernel whose text has none of these has nothing to change.
_CHANGED = re.compile(r"\btensor\s*\[|\band\b|\brange\b|\bif\s+\w+\s+else\b")


def joined(left: Any, right: Callable[[], Any]) -> Any:
    """`left and right()`, where masks are joined as by `&`, with a warning.

    The SDK's list of known issues says that masks are not joined with `and`; its documentation
    tests join them so (nc_match_replace8).
    """
    if not isinstance(left, Mask):
        return left and right()
    warn(
        IndexingError(
            "masks are joined with `and`",
            rule="the SDK documents & only; what `and` means to its compiler may differ",
            fix="put each condition in parentheses and join them with &",
        )
    )
    return left & right()


def given(mask: Any) -> bool:
    """Whether there is a mask: a condition that does not hold in an iteration is one, too."""
    return mask is not None


def looped(function: Callable[..., Iterable], *bounds: Any, **other: Any) -> Iterable:
    """What `for i in range(...)` of a kernel goes over: as much of it as is to be traced.

    Args:
        function: what `range` stands for there.
        bounds, other: its arguments.
    """
    if function is not range or not tracing():
        return function(*bounds, **other)
    numbers = [as_int(b) if type(b) is LoopIndex else b for b in bounds]
    return current().python_loop(range(*numbers, **other), bounds)


def rewritten(func: Callable) -> Callable:
    """`func`, or a copy of it that checks annotated variables, joins masks with `and` and tells of
    its loops over `range`.

    Functions that the kernel defines are changed with it; those that it calls are not. A function
    without source to compile from, as in an interactive session, is returned as it is.
    """
    if not isinstance(func, FunctionType):
        return func
    source = source_of(func.__code__)
    if source is None or not _CHANGED.search(source):
        return func
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return func
    node = tree.body[0] if tree.body else None
    if not isinstance(node, ast.FunctionDef) or node.name != func.__name__:
        return func
    rewriter = _Rewriter(_conditions(node))
    node.body = [rewriter.visit(statement) for statement in node.body]
    if not rewriter.found:
        return func
    node.decorator_list, node.args.defaults, node.returns = [], [], None
    node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    # A function around it turns the names of the closure into closure variables again.
    names = func.__code__.co_freevars
    outer = ast.parse(f"def __outer__({', '.join(names)}):\n    pass").body[0]
    outer.body = [node]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    ast.increment_lineno(node, func.__code__.co_firstlineno - 1)
    flags = func.__code__.co_flags & _FUTURE_ANNOTATIONS
    compiled = compile(module, func.__code__.co_filename, "exec", flags, dont_inherit=True)
    code = _inner(_inner(compiled, "__outer__"), func.__name__)
    if not set(code.co_freevars) <= set(names):
        return func
    compiled_again(code, func.__code__)
    cells = dict(zip(names, func.__closure__ or (), strict=True))
    copy = FunctionType(
        code,
        func.__globals__,
        func.__name__,
        func.__defaults__,
        tuple(cells[n] for n in code.co_freevars),
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    copy.__annotations__ = func.__annotations__
    return copy


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


class _Rewriter(ast.NodeTransformer):
    """The body of a kernel with the changes made.

    `x: tensor[...] = v` becomes `x = check_variable(v, lambda: tensor[...], "x")`, `a and b`
    becomes `joined(a, lambda: b)`, `a & b if a else b` becomes `a & b if given(a) else b`, and
    `for i in range(n)` becomes `for i in looped(range, n)`.

    Args:
        conditions: names that are conditions, or None.
    """

    found = False

    def __init__(self, conditions: frozenset[str]) -> None:
        self.conditions = conditions

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node.annotation)
        if node.value is None or "tensor[" not in text or not isinstance(node.target, ast.Name):
            return node
        call = self._call(
            check_variable, node, node.value, _thunk(node.annotation), ast.Constant(node.target.id)
        )
        return ast.copy_location(ast.Assign([node.target], call), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.And) or _binds_names(node):
            return node
        result = node.values[0]
        for value in node.values[1:]:
            result = self._call(joined, node, result, _thunk(value))
        return result

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        test = node.test
        if isinstance(test, ast.Name) and test.id in self.conditions and _joins(node.body, test.id):
            node.test = self._call(given, test, test)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "range":
            node.iter.args.insert(0, called)
            node.iter.func = self._named(looped, node.iter)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        # What a statement tests has to be one truth value, so that it holds no mask.
        for at, statement in enumerate(node.body):
            node.body[at] = self.visit(statement)
        for at, statement in enumerate(node.orelse):
            node.orelse[at] = self.visit(statement)
        return node

    visit_While = visit_If

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def _call(self, hook: Callable, place: ast.AST, *arguments: ast.expr) -> ast.Call:
        """A call of a function of nkisim, which adds no name to the kernel's globals."""
        call = ast.Call(self._named(hook, place), list(arguments), [])
        for made in (call, *(a for a in arguments if _made(a))):
            ast.copy_location(made, place)
        return call

    def _named(self, hook: Callable, place: ast.AST) -> ast.expr:
        self.found = True
        module, name = hook.__module__, hook.__name__
        text = f"__import__({module!r}, fromlist=[{name!r}]).{name}"
        function = ast.parse(text, mode="eval").body
        for made in ast.walk(function):
            ast.copy_location(made, place)
        return function


def _conditions(function: ast.FunctionDef) -> frozenset[str]:
    """Names that a function sets to a comparison, or to None where there is to be none."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            values = [node.value.body, node.value.orelse]
            if any(isinstance(v, ast.Constant) and v.value is None for v in values) and any(
                isinstance(x, ast.Compare) for v in values for x in ast.walk(v)
            ):
                found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return frozenset(found)


def _joins(node: ast.expr, name: str) -> bool:
    """Whether an expression joins a mask of some name with others by `&`."""
    return any(
        isinstance(x, ast.BinOp)
        and isinstance(x.op, ast.BitAnd)
        and any(isinstance(y, ast.Name) and y.id == name for y in (x.left, x.right))
        for x in ast.walk(node)
    )


def _thunk(expression: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.parse("lambda: 0", mode="eval").body.args, expression)


def _made(node: ast.AST) -> bool:
    return not hasattr(node, "lineno")


def _binds_names(node: ast.AST) -> bool:
    """Whether an expression does what would mean something else inside a lambda."""
    kinds = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    return any(isinstance(inside, kinds) for inside in ast.walk(node))

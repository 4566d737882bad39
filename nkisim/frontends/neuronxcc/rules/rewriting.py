"""Kernels compiled once more, with what NKI's Python means and plain Python does not.

Three things in a kernel never reach code that could be the simulator's. Python evaluates no
annotation of a local variable, so that `x: tensor[128, 512] = nl.load(a)` would pass unchecked;
`a and b` of two masks would be an error, since a mask has no truth value; and `a & b if a else b`
means to ask whether there is a mask a, not what a condition on loop indices says. These become
calls. Of plain Python values, bools among them, they make what Python makes; a condition on the
index of an nl.affine_range or nl.sequential_range loop is a mask to the compiler, and a bool here,
so that one which is to be a mask or None is made into a mask where it is assigned.

All else is what Python imported: the text is that of the function (see nkisim.trace.sources), it is
compiled as a whole, so that classes and functions around the kernel keep their meaning, and a
function with none of the three is left as it is.
"""

from __future__ import annotations

import ast
import copy
import threading
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import numpy as np

from nkisim.errors import IndexingError, warn
from nkisim.frontends.neuronxcc.rules.annotations import check_variable
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.trace.sources import codes_in, compiled_again, definition, find, text_of

_state = threading.local()


def left(value: Any) -> tuple[Any, bool]:
    """The left side of an `and`, and whether the right side is to be evaluated."""
    _state.goes_on = isinstance(value, Mask) or bool(value)
    return value, _state.goes_on


def goes_on() -> bool:
    """Whether the right side of the `and` is to be evaluated, whose left side just was."""
    return _state.goes_on


def joined(left_side: tuple[Any, bool], right: Any) -> Any:
    """`left and right`, where masks are joined as by `&`, with a warning.

    The SDK's list of known issues says that masks are not joined with `and`; its documentation
    tests join them so (nc_match_replace8).
    """
    value, both = left_side
    if not isinstance(value, Mask):
        return right if both else value
    warn(
        IndexingError(
            "masks are joined with `and`",
            rule="the SDK documents & only; what `and` means to its compiler may differ",
            fix="put each condition in parentheses and join them with &",
        )
    )
    return value & right


class Condition(Mask):
    """A mask that holds for all elements or for none: what a comparison of loop indices gives.

    As a condition of Python it is the bool that it was made from.
    """

    __slots__ = ("holds",)

    def __init__(self, holds: bool) -> None:
        super().__init__((Mask(()) & holds).terms)
        self.holds = holds

    def __bool__(self) -> bool:
        return self.holds

    def __eq__(self, other: object) -> bool:
        return self.holds == (other.holds if isinstance(other, Condition) else other)

    def __hash__(self) -> int:
        return hash(self.holds)


def condition(value: Any) -> Any:
    """A comparison of loop indices, as the mask that it is to the compiler."""
    return Condition(bool(value)) if isinstance(value, bool | np.bool_) else value


def given(mask: Any) -> bool:
    """Whether there is a mask: a condition that does not hold in an iteration is one, too."""
    return isinstance(mask, Mask) or bool(mask)


def rewritten(func: Callable) -> Callable:
    """`func`, or a copy of it that checks annotated variables and joins masks with `and`.

    Functions that the kernel defines are changed with it; those that it calls are not. A function
    whose text is not known is returned as it is.
    """
    if not isinstance(func, FunctionType):
        return func
    code = func.__code__
    node = definition(code)
    if node is None or not _changes(copy.deepcopy(node)):
        return func
    tree = ast.parse(text_of(code), code.co_filename)
    _changes(find(tree, code.co_name, code.co_firstlineno))
    whole = compile(ast.fix_missing_locations(tree), code.co_filename, "exec", dont_inherit=True)
    changed = next(
        c
        for c in codes_in(whole)
        if (c.co_qualname, c.co_firstlineno) == (code.co_qualname, code.co_firstlineno)
    )
    compiled_again(changed, code)
    cells = dict(zip(code.co_freevars, func.__closure__ or (), strict=True))
    # Of variables around the kernel that only an annotation names there is no value.
    closure = tuple([cells.get(name) or CellType() for name in changed.co_freevars])
    made = FunctionType(changed, func.__globals__, func.__name__, func.__defaults__, closure)
    made.__kwdefaults__ = func.__kwdefaults__
    made.__annotations__ = func.__annotations__
    made.__qualname__ = func.__qualname__
    return made


def _changes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Change the body of a function. Returns whether there was anything to change."""
    rewriter = _Rewriter(_conditions(node))
    node.body = [rewriter.visit(statement) for statement in node.body]
    return rewriter.found


class _Rewriter(ast.NodeTransformer):
    """Makes the changes.

    `x: tensor[...] = v` becomes `x = check_variable(v, lambda: tensor[...], "x")`, `a and b`
    becomes `joined(left(a), b if goes_on() else None)`, and `a & b if a else b` becomes
    `a & b if given(a) else b`, with `a = condition(i < n) if causal else None` before it.

    Args:
        conditions: names that are conditions, or None, and are joined with other masks.
    """

    def __init__(self, conditions: frozenset[str]) -> None:
        self.conditions = conditions
        self.found = False
        self._indices: set[str] = set()  # names that follow from the index of a loop, by now

    def visit_For(self, node: ast.For) -> ast.AST:
        self._bind(node.target, _loops(node.iter) or self._follows(node.iter))
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        follows = self._follows(node.value)
        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
        value = node.value
        if isinstance(value, ast.IfExp) and names & self.conditions:
            for side in ("body", "orelse"):
                part = getattr(value, side)
                if _compares(part) and self._follows(part):
                    setattr(value, side, self._call(condition, part, part))
        for target in node.targets:
            self._bind(target, follows)
        return self.generic_visit(node)

    def _follows(self, node: ast.expr) -> bool:
        """Whether an expression reads the index of a loop, or what follows from it."""
        return any(isinstance(x, ast.Name) and x.id in self._indices for x in ast.walk(node))

    def _bind(self, target: ast.expr, follows: bool) -> None:
        names = {x.id for x in ast.walk(target) if isinstance(x, ast.Name)}
        if follows:
            self._indices |= names
        elif isinstance(target, ast.Name | ast.Tuple | ast.List):
            self._indices -= names

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node.annotation)
        if node.value is None or "tensor[" not in text or not isinstance(node.target, ast.Name):
            return node
        annotation = ast.Lambda(ast.parse("lambda: 0", mode="eval").body.args, node.annotation)
        name = ast.Constant(node.target.id)
        call = self._call(check_variable, node, node.value, annotation, name)
        return ast.copy_location(ast.Assign([node.target], call), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.And):
            return node
        result = node.values[-1]
        for value in reversed(node.values[:-1]):
            right = ast.IfExp(self._call(goes_on, node), result, ast.Constant(None))
            result = self._call(joined, node, self._call(left, node, value), right)
        return result

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        test = node.test
        if isinstance(test, ast.Name) and test.id in self.conditions and _joins(node.body, test.id):
            node.test = self._call(given, test, test)
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

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def _call(self, hook: Callable, place: ast.AST, *arguments: ast.expr) -> ast.Call:
        """A call of a function of this module, which adds no name to the kernel's globals."""
        self.found = True
        module, name = hook.__module__, hook.__name__
        text = f"__import__({module!r}, fromlist=[{name!r}]).{name}"
        function = ast.parse(text, mode="eval").body
        call = ast.Call(function, list(arguments), [])
        for made in (call, *ast.walk(function), *arguments):
            if made in arguments and hasattr(made, "lineno"):
                continue
            ast.copy_location(made, place)
        return call


def _loops(node: ast.expr) -> bool:
    """Whether an expression is a loop of NKI that the compiler does not unroll."""
    function = node.func if isinstance(node, ast.Call) else None
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name in ("affine_range", "sequential_range")


def _conditions(function: ast.AST) -> frozenset[str]:
    """Names that a function sets to a comparison, or to None where there is to be none."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            values = [node.value.body, node.value.orelse]
            if any([isinstance(v, ast.Constant) and v.value is None for v in values]) and any(
                [_compares(v) for v in values]
            ):
                found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return frozenset(found)


def _compares(node: ast.expr) -> bool:
    """Whether an expression is a comparison, or some that are joined."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _compares(node.left) and _compares(node.right)
    return isinstance(node, ast.Compare)


def _joins(node: ast.expr, name: str) -> bool:
    """Whether an expression joins a mask of some name with others by `&`."""
    return any(
        isinstance(x, ast.BinOp)
        and isinstance(x.op, ast.BitAnd)
        and any(isinstance(y, ast.Name) and y.id == name for y in (x.left, x.right))
        for x in ast.walk(node)
    )

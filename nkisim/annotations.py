"""Shapes that a kernel declares with `nki.typing.tensor[...]`: of parameters and of variables.

Python evaluates no annotation of a local variable. To check `x: tensor[128, 512] = nl.load(a)`
the kernel is compiled once more from its source, with the value of each such assignment passed
through `_check`. Line numbers stay, so debuggers and error messages see the same kernel.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from nkisim.access import AccessPattern
from nkisim.dtypes import as_dtype
from nkisim.errors import ShapeError


def parameter_hints(func: Callable) -> dict[str, Any]:
    """The parameters annotated with nki.typing.tensor or mutable_tensor."""
    hints = {}
    for name, hint in getattr(func, "__annotations__", {}).items():
        if isinstance(hint, str):
            hint = _evaluated(hint, func)
        if getattr(hint, "__module__", "").startswith("nkisim.") and hasattr(hint, "mutable"):
            hints[name] = hint
    return hints


def _evaluated(text: str, func: Callable) -> Any:
    """The object behind a string annotation; None when its names are not to be found."""
    try:
        return eval(text, getattr(func, "__globals__", {}), dict(_closure(func)))
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _closure(func: Callable) -> list[tuple[str, Any]]:
    names = getattr(getattr(func, "__code__", None), "co_freevars", ())
    found = []
    for name, cell in zip(names, getattr(func, "__closure__", None) or (), strict=False):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not filled yet
            continue
    return found


def check_parameters(func: Callable, arguments: dict[str, Any]) -> None:
    """Raises ShapeError for an argument of another shape or dtype than its annotation says.

    Args:
        func: the kernel function.
        arguments: parameter name to argument; only those with a `shape` are checked.
    """
    for name, hint in parameter_hints(func).items():
        value = arguments.get(name)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            _compare(f"argument '{name}'", value, hint)


def _compare(what: str, value: Any, hint: Any) -> None:
    shape, dtype = getattr(hint, "shape", None), getattr(hint, "dtype", None)
    wrong_type = dtype is not None and as_dtype(dtype) != value.dtype
    if (shape is None or tuple(value.shape) == tuple(shape)) and not wrong_type:
        return
    kind = f" of {as_dtype(dtype)}" if dtype is not None else ""
    raise ShapeError(
        f"{what} is {value.dtype}{list(value.shape)}, but is annotated as {list(shape)}{kind}",
        rule="a tensor has the shape that its annotation says",
        fix="correct the annotation, or the shape",
        code="err_annotation_shape_mismatch",
    )


def _check(value: Any, hint: Callable[[], Any], name: str) -> Any:
    """`value`, once it is known to have the annotated shape."""
    if isinstance(value, AccessPattern):
        try:
            found = hint()
        except NameError:  # a name of an enclosing function that the kernel does not use itself
            return value
        if hasattr(found, "mutable"):
            _compare(f"variable '{name}'", value, found)
    return value


def with_checked_variables(func: Callable) -> Callable:
    """`func`, or a copy of it that checks the annotated shapes of its variables."""
    if not isinstance(func, FunctionType):
        return func
    try:
        lines, first = inspect.getsourcelines(func)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return func  # no source to compile from, as in an interactive session
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef) or node.name != func.__name__:
        return func
    rewriter = _Rewriter()
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
    ast.increment_lineno(node, first - 1)
    flags = func.__code__.co_flags & _FUTURE_ANNOTATIONS
    compiled = compile(module, func.__code__.co_filename, "exec", flags, dont_inherit=True)
    code = _inner(_inner(compiled, "__outer__"), func.__name__)
    if not set(code.co_freevars) <= set(names):
        return func
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


_FUTURE_ANNOTATIONS = annotations.compiler_flag


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


class _Rewriter(ast.NodeTransformer):
    """`x: tensor[...] = v` becomes `x: tensor[...] = check(v, lambda: tensor[...], "x")`."""

    found = False

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        text = ast.unparse(node.annotation)
        if node.value is None or "tensor[" not in text or not isinstance(node.target, ast.Name):
            return node
        self.found = True
        # An expression, so that no name is added to the kernel's globals.
        hook = ast.parse("__import__('nkisim.annotations', fromlist=['_check'])._check").body[0]
        thunk = ast.Lambda(ast.parse("lambda: 0").body[0].value.args, node.annotation)
        for made in (*ast.walk(hook.value), thunk, *ast.walk(thunk.args)):
            ast.copy_location(made, node)
        call = ast.Call(hook.value, [node.value, thunk, ast.Constant(node.target.id)], [])
        return ast.copy_location(ast.Assign([node.target], call), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # functions inside a kernel are left alone

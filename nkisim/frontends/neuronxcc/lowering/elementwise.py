"""Elementwise mathematics: one instruction a call, by way of `elementwise`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.errors import Location, ParameterError, ShapeError, locate
from nkisim.frontends.neuronxcc.lowering.matmul import absorb_product
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.lowering.numbers import constant, number
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import (
    as_tile,
    domain,
    require_on_chip,
    require_tensor,
    spread,
)
from nkisim.frontends.neuronxcc.tensors.index import Mask, broadcast_shapes
from nkisim.frontends.neuronxcc.tensors.reshaping import once
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor, provide_operations
from nkisim.ir.dtypes import BOOL, promote, weak_scalar_dtype
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics import alu
from nkisim.trace.tracer import current


def elementwise(
    op: str,
    *operands: Tensor | float,
    out: Tensor | None = None,
    dtype: Any = None,
    mask: Mask | None = None,
    engine: Engine | None = None,
) -> Tensor:
    """Lower one elementwise operator. All of the functions below come here.

    Args:
        op: key in `nkisim.numerics.alu.ALU`.
        *operands: on-chip tiles, or numbers; at least one tile.
        out: tile to write; a new SBUF tile when None.
        dtype: output type; by NKI type promotion when None.
        mask: where to compute.
        engine: engine to run on; the documented choice when None.
    """
    values = [_operand(op, x) for x in operands]
    tiles = [x for x in values if isinstance(x, Tensor)]
    if not tiles:
        raise ShapeError(
            f"nl.{op} of numbers only",
            rule="at least one operand is a tile",
            fix="compute it in Python",
        )
    first = tiles[0].shape
    if len(first) > 1 and all([t.shape == first for t in tiles]):
        shape = first
    else:
        shape, tiles = domain(f"nl.{op}", tiles)
        rest = iter(tiles)
        values = [next(rest) if isinstance(x, Tensor) else x for x in values]
    if alu.ALU[op].kind == "bits":
        values = _bit_patterns(values, tiles)
    types = tuple([x.dtype if isinstance(x, Tensor) else weak_scalar_dtype(x) for x in values])
    natural = _typing(op, types)
    wide = shape
    if out is None:
        if mask is None:
            values, shape = _once(values, shape)
        out = ndarray(shape, natural if dtype is None else dtype)
    elif as_tile(out).shape != shape:
        raise ShapeError(
            f"result of shape {shape} into {out.describe()}",
            rule="an in-place operation keeps the shape of its left operand",
            fix="broadcast the right operand, not the left",
        )
    opcode = _opcode(op, tuple([x.shape if isinstance(x, Tensor) else None for x in values]), shape)
    ins = tuple([spread(x, shape) if isinstance(x, Tensor) else x for x in values])
    if opcode == "activation":
        ins = (*ins, 1.0, 0.0)  # scale and bias
    whole = native(op, out.dtype, types)
    default = Engine.GPSIMD if whole or op == "power" else None
    if default is not None and engine is None:  # GpSimd cannot reach PSUM
        ins = tuple([_in_sbuf(x) for x in ins])
    attrs = {"op": op, "native": True} if whole else {"op": op}
    current().emit(opcode, (as_tile(out),), ins, mask=mask, engine=engine, default=default, **attrs)
    return out if shape == wide else out.broadcast_to(wide)


def _once(values: list, shape: tuple[int, ...]) -> tuple[list, tuple[int, ...]]:
    """The operands, and the shape of the result, with one element for each that they repeat along
    free axes: `nl.exp(t[i_p, 3])` with a dense i_p computes one column."""
    less = [once(x) if isinstance(x, Tensor) else x for x in values]
    if all(map(operator.is_, values, less)):
        return values, shape
    narrow = broadcast_shapes(*(x.shape for x in less if isinstance(x, Tensor)))
    return (less, narrow) if narrow[0] == shape[0] and narrow != shape else (values, shape)


def _operand(op: str, x: object) -> Tensor | float:
    if not isinstance(x, Tensor):
        return number(x)
    require_on_chip(op, x)
    return x


def _bit_patterns(values: list, tiles: list[Tensor]) -> list:
    """`values` with Python integers as uint32 beside a uint32 tile: int32, what they are by
    promotion, has no common type with it."""
    if not any(t.dtype == np.uint32 for t in tiles):
        return values
    return [np.uint32(x % 2**32) if type(x) is int else x for x in values]


def _in_sbuf(x: Tensor | float) -> Tensor | float:
    return copy(x) if isinstance(x, Tensor) and x.space is Space.PSUM else x


@functools.lru_cache(maxsize=4096)
def _opcode(op: str, operands: tuple[tuple[int, ...] | None, ...], shape: tuple[int, ...]) -> str:
    """The opcode that computes an operator on one tile, a tile and a scalar a lane, or two tiles.

    Args:
        op: the operator.
        operands: shapes of tiles, None for numbers.
        shape: of the result.
    """
    if len(operands) == 1:
        return "activation" if alu.ALU[op].kind == "float" else "tensor_scalar"
    vectors = [x is not None and x[1:] == (1,) * (len(x) - 1) != shape[1:] for x in operands]
    return "tensor_scalar" if None in operands or any(vectors) else "tensor_tensor"


@functools.lru_cache(maxsize=4096)
def _typing(op: str, types: tuple[np.dtype, ...]) -> np.dtype:
    """The type of the result.

    Raises:
        DTypeError: a bit operation is given something that is not an integer.
    """
    alu.check_operand_types(op, types)
    return _result_dtype(op, types)


def native(op: str, result: np.dtype, types: tuple[np.dtype, ...]) -> bool:
    """Whether GpSimd runs an operator in integers: add, subtract and multiply (nisa.tensor_tensor,
    SDK 2.26) where the result and all operands, numbers included, are int32 or uint32 (the same
    page of SDK 2.32, which says which integers these are)."""
    return op in ("add", "subtract", "multiply") and alu.WIDE.issuperset((result, *types))


def _result_dtype(op: str, types: tuple[np.dtype, ...]) -> np.dtype:
    kind = alu.ALU[op].kind
    if kind in ("compare", "logic"):
        return BOOL
    result = alu.bits_dtype(*types) if kind == "bits" else functools.reduce(promote, types)
    return np.dtype(np.uint8) if result == BOOL and kind != "bits" else result


@remembered
def where(
    condition: Tensor,
    x: Tensor,
    y: Tensor | float,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`x` where `condition` is not zero, else `y`. Tiles of one shape; `y` may be a number, and the
    condition may be a mask, which compares indices.

    Raises:
        ParameterError: x is a number and y a tile.
    """
    if np.isscalar(x) and isinstance(y, Tensor):
        raise ParameterError(
            f"nl.where: x is {x!r}, and y is {y.describe()}",
            rule="where the condition holds the result is of a tile; only y may be a number",
            fix="swap the two, and turn the condition around: nl.where(t <= 0, y, x) for "
            "nl.where(t > 0, x, y)",
        )
    if isinstance(condition, Mask):
        return _where_index(condition, x, y, dtype, mask)
    for name, tile in (("condition", condition), ("x", x)):
        require_tensor(f"{name} of nl.where", tile)
        require_on_chip("where", tile)
    if isinstance(y, Tensor):
        require_on_chip("where", y)
    kind = y.dtype if isinstance(y, Tensor) else weak_scalar_dtype(number(y))
    tiles = [t for t in (condition, x, y) if isinstance(t, Tensor)]
    shape, tiles = domain("nl.where", tiles)
    out = ndarray(shape, promote(x.dtype, kind) if dtype is None else dtype)
    ins = [spread(t, shape) for t in tiles]
    current().emit("select", (out,), (*ins, y)[:3], mask=mask)
    return out


def _where_index(
    condition: Mask, x: Tensor, y: Tensor | float, dtype: Any, mask: Mask | None
) -> Tensor:
    """A copy of `y`, and on it one of `x` as far as a condition on indices holds."""
    require_tensor("nl.where", x)
    require_on_chip("where", x)
    if isinstance(y, Tensor):
        require_on_chip("where", y)
    kind = y.dtype if isinstance(y, Tensor) else weak_scalar_dtype(number(y))
    shape, (x, *other) = domain("nl.where", [t for t in (x, y) if isinstance(t, Tensor)])
    out = ndarray(shape, promote(x.dtype, kind) if dtype is None else dtype)
    if other:
        (y,) = other
        current().emit("tensor_copy", (out,), (spread(y, shape),), mask=mask)
    else:
        current().emit("memset", (out,), value=constant("nl.where", y, out.dtype), mask=mask)
    chosen = condition if mask is None else condition & mask
    current().emit("tensor_copy", (out,), (spread(x, shape),), mask=chosen)
    return out


def _unary(name: str, doc: str) -> Callable:
    def function(x, *, dtype=None, mask=None, **kwargs):
        return elementwise(name, x, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _binary(name: str, doc: str) -> Callable:
    def function(x, y, *, dtype=None, mask=None, **kwargs):
        return elementwise(name, x, y, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _comparison(name: str, doc: str) -> Callable:
    def function(x, y, *, dtype=bool, mask=None, **kwargs):
        return elementwise(name, x, y, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _remainder(name: str, doc: str) -> Callable:
    def function(x, y, dtype=None, mask=None, **kwargs):
        return elementwise(name, x, y, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _logical_not(x, *, dtype=bool, mask=None, **kwargs):
    return elementwise("logical_not", x, dtype=dtype, mask=mask)


def _named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc}\n\n    Operands are on-chip tiles, first axis partitions (<= 128), or numbers; "
        "shapes broadcast.\n    Output dtype by NKI type promotion, or `dtype`. Only elements "
        "under `mask` are computed.\n    "
    )
    return remembered(function)


_UNARY = {
    "abs": "Absolute value.",
    "arctan": "Inverse tangent.",
    "ceil": "Round up.",
    "cos": "Cosine.",
    "erf": "Error function.",
    "erf_dx": "Derivative of erf.",
    "exp": "e to the x.",
    "floor": "Round down.",
    "invert": "Bitwise not, of integers.",
    "gelu": "x times the normal distribution function of x.",
    "gelu_apprx_sigmoid": "gelu as x * sigmoid(1.702 x).",
    "gelu_apprx_tanh": "gelu with tanh in place of erf.",
    "gelu_dx": "Derivative of gelu.",
    "log": "Natural logarithm.",
    "mish": "x * tanh(softplus(x)).",
    "negative": "-x.",
    "reciprocal": "1 / x.",
    "relu": "max(x, 0).",
    "rsqrt": "1 / sqrt(x).",
    "sigmoid": "1 / (1 + exp(-x)).",
    "sign": "-1, 0 or 1 by sign.",
    "silu": "x * sigmoid(x).",
    "silu_dx": "Derivative of silu.",
    "sin": "Sine.",
    "softplus": "log(1 + exp(x)).",
    "sqrt": "Square root.",
    "square": "x * x.",
    "tan": "Tangent.",
    "tanh": "Hyperbolic tangent.",
    "trunc": "Round toward zero.",
}
_BINARY = {
    "add": "x + y.",
    "bitwise_and": "Bitwise and, of integers.",
    "bitwise_or": "Bitwise or, of integers.",
    "bitwise_xor": "Bitwise exclusive or, of integers.",
    "divide": "x / y.",
    "left_shift": "x << y, of integers.",
    "maximum": "The larger of x and y.",
    "minimum": "The smaller of x and y.",
    "multiply": "x * y.",
    "power": "x to the y.",
    "right_shift": "x >> y, of integers.",
    "subtract": "x - y.",
}
_COMPARISON = {
    "equal": "x == y, as bool.",
    "greater": "x > y, as bool.",
    "greater_equal": "x >= y, as bool.",
    "less": "x < y, as bool.",
    "less_equal": "x <= y, as bool.",
    "logical_and": "Logical and, as bool.",
    "logical_or": "Logical or, as bool.",
    "logical_xor": "Logical exclusive or, as bool.",
    "not_equal": "x != y, as bool.",
}
_REMAINDER = {
    "fmod": "Remainder with the sign of x.",
    "mod": "Remainder with the sign of y.",
}
FUNCTIONS = {name: _unary(name, doc) for name, doc in _UNARY.items()}
FUNCTIONS |= {name: _binary(name, doc) for name, doc in _BINARY.items()}
FUNCTIONS |= {name: _comparison(name, doc) for name, doc in _COMPARISON.items()}
FUNCTIONS |= {name: _remainder(name, doc) for name, doc in _REMAINDER.items()}
FUNCTIONS["logical_not"] = _named(_logical_not, "logical_not", "Logical not, as bool.")
_NAMES = {fn: name for name, fn in FUNCTIONS.items()}


# Other functions that stand for an operator: NumPy's names for it, and its reductions.
_ALIASES = {
    "true_divide": "divide",
    "remainder": "mod",
    "absolute": "abs",
    "amax": "maximum",
    "max": "maximum",
    "amin": "minimum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
}


def operator_name(op: Any) -> str:
    """The operator that `op` (an nl function, or NumPy's function of that name) stands for.

    Raises:
        ParameterError: no engine has such an operator.
    """
    name = _NAMES.get(op) if callable(op) else None
    if name is None:
        name = getattr(op, "__name__", "")
        name = _ALIASES.get(name, name)
    if name not in alu.ALU:
        raise ParameterError(
            f"op={op!r} is not an operator of the engines",
            rule="operators are " + ", ".join(sorted(alu.ALU)),
            fix="leave the destination out, and take the result: one that comes first is "
            "`import nki`"
            if isinstance(op, Tensor)
            else "pass an nki.language function, e.g. op=nl.add",
        )
    return name


def _operator(op: str, x: Tensor | float, y: Tensor | float) -> Tensor:
    """`x op y`, by one of Python's operators."""
    _check_operator(op, x, y)
    return FUNCTIONS[op](x, y)


def _check_operator(op: str, x: Tensor | float, y: Tensor | float) -> None:
    """Report an operator that would broadcast a tile over partitions."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return
    if x.shape[:1] == y.shape[:1]:
        return
    if as_tile(x).shape[0] == as_tile(y).shape[0]:
        return
    if x.ndim == y.ndim > 1 and 1 in (x.shape[0], y.shape[0]):
        error = ShapeError(
            f"an operator of Python is given {x.describe()} and {y.describe()}",
            rule="operators do not broadcast over partitions on a device, as the functions of "
            "nki.language do (AWS's known issues)",
            fix=f"write nl.{op}(x, y)",
            location=locate(),
        )
        current().checker.report("compiler", error)


def _assign_op(op: str, target: Tensor, value: Tensor | float, location: Location | None) -> None:
    """`target op= value`, in place, at a kernel line. A mask that leaves nothing of the value
    leaves the target."""
    if isinstance(value, Tensor):
        if value.shape is not target.shape:
            _check_operator(op, target, value)
        if op == "add" and absorb_product(target, value, location):
            return
        checker = current().checker
        if value.space.on_chip and checker.left_out(value):
            if checker.untouched(target):
                checker.on_masked_off((target,))
            return
    _in_place(op, target, value)


@remembered
def _in_place(op: str, target: Tensor, value: Tensor | float) -> None:
    elementwise(op, target, value, out=target)


provide_operations(
    FUNCTIONS | {"operator": _operator, "operator_name": operator_name, "assign_op": _assign_op}
)

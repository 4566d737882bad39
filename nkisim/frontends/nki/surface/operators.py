"""Operators of `nki.language`. Called on tiles, one makes a new SBUF tile; given to an instruction
as `op=`, it names the operator instead.

Free axes of extent 1 are repeated, with a warning: on a device they are not. The result has the
type of the first tile unless `dtype` is given.
"""

from __future__ import annotations

import inspect
import math
import numbers
from builtins import all as every
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.errors import (
    DTypeError,
    KernelError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
    locate,
    warn,
)
from nkisim.frontends.nki import ops
from nkisim.frontends.nki.declare import make
from nkisim.frontends.nki.dtypes import INTEGERS, as_integers
from nkisim.frontends.nki.operands import check_on_chip, same_domain
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.copies import tensor_copy
from nkisim.frontends.nki.surface.isa.scalar import activation as activate
from nkisim.frontends.nki.surface.isa.vector import elementwise
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.frontends.settings import check_number
from nkisim.ir.memory import Space
from nkisim.numerics.ops.elementwise import Operators


def new_like(call: str, x: NkiTensor, dtype: Any = None, shape: tuple | None = None) -> NkiTensor:
    """A new SBUF tile for a result of `x`."""
    if not isinstance(x, NkiTensor) or not x._layout.on_chip:
        given = x.describe() if isinstance(x, NkiTensor) else repr(x)
        raise ParameterError(
            f"nl.{call} of {given}",
            rule="it takes tiles in SBUF or PSUM",
            fix="nl.load the tensor first" if isinstance(x, NkiTensor) else _in_python(call, x),
        )
    return make(
        x.shape if shape is None else shape, x.dtype if dtype is None else dtype, MemoryRegion.sbuf
    )


def _in_python(call: str, x: Any) -> str:
    """The fix for a function on tiles that is called on no tensor."""
    if not isinstance(x, int | float | np.number):
        return "pass it to the kernel as an argument, and nl.load that"
    known = {"rsqrt": "1 / math.sqrt(x)", "square": "x * x", "reciprocal": "1 / x"}
    function = known.get(call, f"math.{call}(x)" if hasattr(math, call) else "Python's math")
    return f"compute it in Python, with {function}: a number is known while the kernel is traced"


def _unary(name: str, doc: str, *, activation: bool, psum: bool = True) -> Callable:
    def function(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        if not psum and isinstance(x, NkiTensor) and x._layout.space is Space.PSUM:
            raise MemorySpaceError(
                f"nl.{name} of {x.describe()}",
                rule=f"nl.{name} runs on the GpSimd Engine, which does not reach PSUM",
                fix=f"use nisa.activation with op=nl.{name}, or copy with nisa.tensor_copy first",
            )
        dst = new_like(name, x, dtype)
        if name in ops.BITS:
            _whole(name, x)
        if activation:
            activate(dst, function, x)
        else:
            _compute(name, dst, (x,))
        return dst

    raises = {"ParameterError": "x is no tile in SBUF or PSUM."}
    if name in ops.BITS:
        raises["DTypeError"] = "x is of no integer type."
    if not psum:
        raises["MemorySpaceError"] = "x is in PSUM, which the engine does not reach."
    return _named(function, name, doc, raises)


def _compute(name: str, dst: NkiTensor, tiles: tuple, scalars: tuple = ()) -> None:
    """An instruction of one operator that has no name in `nki.isa`."""

    def lower() -> Recipe:
        check_on_chip(f"nl.{name}", dst=dst, **{f"operand {n}": t for n, t in enumerate(tiles)})
        out, *walks = same_domain(f"nl.{name}", dst, *tiles)
        return Recipe("tensor_tensor", None, [out], walks, scalars or None, Operators(op=name))

    current().issue((name, "wrapper", scalars), (dst, *tiles), lower)


def _binary(name: str, doc: str, *, on_engine: bool = True) -> Callable:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        tile = x if isinstance(x, NkiTensor) else y
        tiles = isinstance(x, NkiTensor), isinstance(y, NkiTensor)
        _check_operands(name, x, y)
        column = None
        if every(tiles) and x.shape != y.shape:
            new_like(name, x), new_like(name, y)  # which refuse what is not on chip
            first, second = spread(name, x, y)
            _tell_of_broadcasting(name, x, y)
            if on_engine and _is_column(y, first):
                column = first, y, False
            elif on_engine and _is_column(x, second):
                column = second, x, True
            x, y = first, second
        dst = new_like(name, tile, dtype, x.shape if isinstance(x, NkiTensor) else None)
        if name == "power" and not every(tiles):
            raise ParameterError(
                "nl.power with a number",
                rule="both operands are tiles",
                fix="fill a tile with nl.full, or multiply",
            )
        if not on_engine:
            warn(_only_simulated(name))
        if every(tiles) and not on_engine:
            _compute(name, dst, (x, y))
        elif not on_engine:
            _compute(
                name, dst, (tile,), tuple(None if isinstance(v, NkiTensor) else v for v in (x, y))
            )
        elif not every(tiles):
            other, reverse = (y, False) if tiles[0] else (x, True)
            elementwise.tensor_scalar(dst, tile, function, other, reverse)
        elif column is not None:
            data, operand, reverse = column
            elementwise.tensor_scalar(dst, data, function, operand, reverse)
        else:
            elementwise.tensor_tensor(dst, x, y, function)
        return dst

    raises = {
        "ParameterError": "an operand that is neither a tile in SBUF or PSUM nor a number"
        + (", or is one." if name == "power" else "."),
        "ShapeError": "tiles whose shapes do not go together.",
    }
    if name in ops.BITS:
        raises["DTypeError"] = "an operand of no integer type."
    return _named(function, name, doc, raises)


def _check_operands(name: str, *operands: Any) -> None:
    """Raises ParameterError or DTypeError for what is neither a tile nor a number, or no integer
    where the operator works on bits."""
    for given in operands:
        if isinstance(given, NkiTensor):
            if name in ops.BITS:
                _whole(name, given)
        elif not isinstance(given, numbers.Number) and not hasattr(given, "__float__"):
            raise ParameterError(
                f"nl.{name} with {given!r}",
                rule="operands are tiles in SBUF or PSUM, and numbers",
                fix="pass one of these",
            )
        else:
            check_number("an operand", f"nl.{name}", given)


def _whole(name: str, tile: NkiTensor) -> None:
    if tile.dtype not in INTEGERS and tile.dtype != "bool":
        raise DTypeError(
            f"nl.{name} of {tile.describe()}",
            rule="bit operators take integer types, and do not convert",
            fix=as_integers(tile.dtype),
        )


def spread(name: str, *tiles: NkiTensor) -> tuple[NkiTensor, ...]:
    """Views of tiles in one shape: free axes of extent 1 are repeated, as NumPy does. A (P, 1) tile
    goes with any that has as many partitions."""
    most = sorted(t.ndim for t in tiles)[-1]
    views = [
        t if t.ndim == most or t.size != t.shape[0] else t.reshape((t.shape[0], *[1] * (most - 1)))
        for t in tiles
    ]
    shapes = [t.shape for t in views]
    whole = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=False))
    for view in views:
        fits = view.ndim == most and view.shape[0] == whole[0]
        if not fits or [1 for n, m in zip(view.shape, whole, strict=True) if n not in (1, m)]:
            raise _other_shape(name, tiles[0], tiles[-1])
    return tuple(_repeated(view, whole) for view in views)


def _tell_of_broadcasting(name: str, x: NkiTensor, y: NkiTensor) -> None:
    error = ShapeError(
        f"nl.{name} of {x.describe()} and {y.describe()} broadcasts",
        rule="AWS's known issues say since NKI 0.3 that binary functions of nl do not broadcast, a "
        "(128, 1) tile neither; public kernels call them so all the same",
        fix="use nisa.tensor_scalar for a (P, 1) tile, or repeat an axis with "
        "t.broadcast(dim, size)",
        location=locate(),
    )
    current().checker.report("compiler", error)


def _repeated(view: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    for d, n in enumerate(shape):
        if view.shape[d] != n:
            view = view.broadcast(d, n)
    return view


def _other_shape(name: str, x: NkiTensor, y: NkiTensor) -> KernelError:
    return ShapeError(
        f"nl.{name} of {x.describe()} and {y.describe()}",
        rule="both tiles have as many partitions and axes, and free axes of one extent, or of 1, "
        "which is repeated; a (P, 1) tile goes with any",
        fix="slice the tiles to one size, or add axes with t.expand_dim(dim)",
    )


_INSTEAD = {
    "divide": "multiply by a reciprocal: nl.multiply(x, nl.reciprocal(y))",
    "mod": "compute x - y * nl.floor(x / y) from a reciprocal",
    "fmod": "compute x - y * nl.trunc(x / y) from a reciprocal",
}


def _only_simulated(name: str) -> KernelError:
    return ParameterError(
        f"nl.{name}",
        rule=f"nl.{name} runs in simulators only; a kernel with it does not compile for a device",
        fix=_INSTEAD[name],
    )


def _is_column(y: NkiTensor, x: NkiTensor) -> bool:
    """Whether y is an operand of tensor_scalar beside x: of other types, it is repeated."""
    return y.shape != x.shape and y.size == y.shape[0] and y.dtype == "float32"


def _named(function: Callable, name: str, doc: str, raises: dict[str, str]) -> Callable:
    function.__name__ = function.__qualname__ = name
    takes = ", ".join(inspect.signature(function).parameters)
    function.__doc__ = (
        f"{doc}\n\n    `{name}({takes})` makes a new SBUF tile; also `op=nl.{name}`.\n\n"
        "    Raises:\n" + "".join(f"        {error}: {why}\n" for error, why in raises.items())
    )
    ops.NAMES[function] = name
    return function


add = _binary("add", "x + y.")
subtract = _binary("subtract", "x - y.")
multiply = _binary("multiply", "x * y.")
divide = _binary("divide", "x / y, in the simulator only.", on_engine=False)
maximum = _binary("maximum", "The larger of x and y.")
minimum = _binary("minimum", "The smaller of x and y.")
abs_max = _binary("abs_max", "Which of x and y is larger in magnitude (NeuronCore-v4).")
abs_min = _binary("abs_min", "Which of x and y is smaller in magnitude (NeuronCore-v4).")
power = _binary("power", "x ** y, of two tiles.")
equal = _binary("equal", "1 where x == y, else 0, in x's type.")
not_equal = _binary("not_equal", "1 where x != y, else 0, in x's type.")
less = _binary("less", "1 where x < y, else 0, in x's type.")
less_equal = _binary("less_equal", "1 where x <= y, else 0, in x's type.")
greater = _binary("greater", "1 where x > y, else 0, in x's type.")
greater_equal = _binary("greater_equal", "1 where x >= y, else 0, in x's type.")
bitwise_and = _binary("bitwise_and", "x & y, of integers.")
bitwise_or = _binary("bitwise_or", "x | y, of integers.")
bitwise_xor = _binary("bitwise_xor", "x ^ y, of integers.")
left_shift = _binary("left_shift", "x << y, of integers.")
right_shift = _binary("right_shift", "x >> y, of integers, with zeros from the left.")
logical_and = _binary("logical_and", "x and y, of zeros and ones.")
logical_or = _binary("logical_or", "x or y, of zeros and ones.")
logical_xor = _binary("logical_xor", "x != y, of zeros and ones.")
mod = _binary("mod", "The remainder, with y's sign; in the simulator only.", on_engine=False)
fmod = _binary("fmod", "The remainder, with x's sign; in the simulator only.", on_engine=False)

exp = _unary("exp", "e ** x.", activation=True)
log = _unary("log", "The natural logarithm.", activation=True)
sqrt = _unary("sqrt", "The square root.", activation=True)
tanh = _unary("tanh", "The hyperbolic tangent.", activation=True)
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).", activation=True)
relu = _unary("relu", "max(x, 0).", activation=True)
gelu = _unary("gelu", "GELU.", activation=True)
gelu_apprx_sigmoid = _unary("gelu_apprx_sigmoid", "x * sigmoid(1.702 x).", activation=True)
gelu_apprx_tanh = _unary("gelu_apprx_tanh", "GELU with tanh in place of erf.", activation=True)
gelu_dx = _unary("gelu_dx", "The derivative of GELU.", activation=True)
gelu_apprx_sigmoid_dx = _unary(
    "gelu_apprx_sigmoid_dx", "The derivative of x * sigmoid(1.702 x).", activation=True
)
silu = _unary("silu", "x * sigmoid(x).", activation=True)
silu_dx = _unary("silu_dx", "The derivative of SiLU.", activation=True)
softplus = _unary("softplus", "log(1 + exp(x)).", activation=True)
mish = _unary("mish", "x * tanh(softplus(x)).", activation=True)
erf = _unary("erf", "The error function.", activation=True)
erf_dx = _unary("erf_dx", "The derivative of the error function.", activation=True)
square = _unary("square", "x * x.", activation=True)
abs = _unary("abs", "The absolute value.", activation=True)
arctan = _unary("arctan", "The inverse tangent.", activation=True)
sign = _unary("sign", "-1, 0 or 1.", activation=True)
rsqrt = _unary("rsqrt", "1 / sqrt(x), of a tile in SBUF.", activation=True, psum=False)
reciprocal = _unary("reciprocal", "1 / x.", activation=True)
cos = _unary("cos", "The cosine.", activation=False)
tan = _unary("tan", "The tangent.", activation=False)
ceil = _unary("ceil", "Rounds up.", activation=False)
floor = _unary("floor", "Rounds down.", activation=False)
trunc = _unary("trunc", "Rounds toward zero.", activation=False)
negative = _unary("negative", "-x.", activation=False)
logical_not = _unary("logical_not", "1 - x, of zeros and ones.", activation=False)
invert = _unary("invert", "~x, of integers.", activation=False)


def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The sine, of any argument: it is brought into [-pi, pi] first. As `op=nl.sin` of an
    activation the argument has to be in that range.

    Raises:
        ParameterError: x is no tile in SBUF or PSUM.
    """
    dst = new_like("sin", x, dtype)
    _compute("sin", dst, (x,))
    return dst


ops.NAMES[sin] = "sin"


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x in a new SBUF tile; with equal dtypes bit by bit. Also `op=nl.copy`.

    Raises:
        ParameterError: x is no tile in SBUF or PSUM.
    """
    dst = new_like("copy", x, dtype)
    tensor_copy(dst, x)
    return dst


ops.NAMES[copy] = "copy"


average = ops.Operator("average", "The mean, for nisa.tensor_partition_reduce.")
prelu = ops.Operator("prelu", "max(x, 0) + slope * min(x, 0), for nisa.activate2.")
bypass = ops.Operator("bypass", "No operator, for nisa.activate2.")

__all__ = [*ops.NAMES.values()]

"""Functions of `nki.language` on tiles. Each makes a new SBUF tile; given to an instruction as
`op=`, it names the operator instead.

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
from nkisim.frontends.nki.dtypes import INTEGERS
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space


class Instructions:
    """Instructions of the layer above that functions on tiles call; it sets them on import.

    Attributes:
        isa: the module of the instructions, which take their operators from here.
    """

    isa: Any


def _like(call: str, x: NkiTensor, dtype: Any = None, shape: tuple | None = None) -> NkiTensor:
    """A new SBUF tile for a result of `x`."""
    from nkisim.frontends.nki.declare import make
    from nkisim.frontends.nki.tensors.tensor import MemoryRegion

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
        dst = _like(name, x, dtype)
        if name in ops.BITS:
            _whole(name, x)
        if activation:
            Instructions.isa.activation(dst, function, x)
        else:
            _compute(name, dst, (x,))
        return dst

    return _named(function, name, doc)


def _compute(name: str, dst: NkiTensor, tiles: tuple, scalars: tuple = ()) -> None:
    """An instruction of one operator that has no name in `nki.isa`."""
    from nkisim.frontends.nki.operands import check_on_chip, same_domain
    from nkisim.frontends.nki.session import Recipe, current

    def lower() -> Recipe:
        check_on_chip(f"nl.{name}", dst=dst, **{f"operand {n}": t for n, t in enumerate(tiles)})
        out, *walks = same_domain(f"nl.{name}", dst, *tiles)
        return Recipe("tensor_tensor", None, [out], walks, scalars or None, {"op": name})

    current().issue((name, "wrapper", scalars), (dst, *tiles), lower)


def _binary(name: str, doc: str, *, on_engine: bool = True) -> Callable:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        tile = x if isinstance(x, NkiTensor) else y
        tiles = isinstance(x, NkiTensor), isinstance(y, NkiTensor)
        _check_operands(name, x, y)
        column = None
        if every(tiles) and x.shape != y.shape:
            _like(name, x), _like(name, y)  # which refuse what is not on chip
            first, second = _spread(name, x, y)
            _tell_of_broadcasting(name, x, y)
            if on_engine and _is_column(y, first):
                column = first, y, False
            elif on_engine and _is_column(x, second):
                column = second, x, True
            x, y = first, second
        dst = _like(name, tile, dtype, x.shape if isinstance(x, NkiTensor) else None)
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
            Instructions.isa.tensor_scalar(dst, tile, function, other, reverse)
        elif column is not None:
            data, operand, reverse = column
            Instructions.isa.tensor_scalar(dst, data, function, operand, reverse)
        else:
            Instructions.isa.tensor_tensor(dst, x, y, function)
        return dst

    return _named(function, name, doc)


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


def _whole(name: str, tile: NkiTensor) -> None:
    if tile.dtype not in INTEGERS and tile.dtype != "bool":
        raise DTypeError(
            f"nl.{name} of {tile.describe()}",
            rule="bit operators take integer types, and do not convert",
            fix="view the bits as an integer type: t.view(nl.uint32)",
        )


def _spread(name: str, *tiles: NkiTensor) -> tuple[NkiTensor, ...]:
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
    from nkisim.frontends.nki.session import current

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


def _named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    takes = ", ".join(inspect.signature(function).parameters)
    function.__doc__ = (
        f"{doc}\n\n    `{name}({takes})` makes a new SBUF tile; also `op=nl.{name}`.\n"
    )
    ops.NAMES[function] = name
    return function


def _on_bits(name: str) -> bool:
    return name in ops.BITS


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
    activation the argument has to be in that range."""
    dst = _like("sin", x, dtype)
    _compute("sin", dst, (x,))
    return dst


ops.NAMES[sin] = "sin"


def reciprocal(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1 / x, in a new SBUF tile; also `op=nl.reciprocal`."""
    dst = _like("reciprocal", x, dtype)
    Instructions.isa.reciprocal(dst, x)
    return dst


ops.NAMES[reciprocal] = "reciprocal"


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x in a new SBUF tile; with equal dtypes bit by bit. Also `op=nl.copy`."""
    dst = _like("copy", x, dtype)
    Instructions.isa.tensor_copy(dst, x)
    return dst


ops.NAMES[copy] = "copy"


class _Token:
    """An operator that is no function."""

    def __init__(self, name: str, doc: str) -> None:
        self.__name__ = name
        self.__doc__ = doc
        ops.NAMES[self] = name

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"


average = _Token("average", "The mean, for nisa.tensor_partition_reduce.")
prelu = _Token("prelu", "max(x, 0) + slope * min(x, 0), for nisa.activate2.")
bypass = _Token("bypass", "No operator, for nisa.activate2.")


# -- reductions -----------------------------------------------------------------------------------


def _reduced(x: NkiTensor, axis: Any, keepdims: bool, call: str) -> tuple[tuple, tuple]:
    """(axes, shape of the result)."""
    from nkisim.frontends.nki.surface.isa.vector.checks import axes_of

    axes = axes_of(f"nl.{call}", x, axis)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    shape = kept if keepdims else tuple(n for d, n in enumerate(x.shape) if d not in axes)
    return axes, shape if len(shape) > 1 else (x.shape[0], 1)


def _reduction(name: str, op: Callable, doc: str) -> Callable:
    def function(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        axes, shape = _reduced(x, axis, keepdims, name)
        dst = _like(name, x, dtype, shape)
        Instructions.isa.tensor_reduce(dst, op, x, axes)
        return dst

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} over the last axes, in a new SBUF tile."
    return function


sum = _reduction("sum", add, "The sum")
max = _reduction("max", maximum, "The maximum")
min = _reduction("min", minimum, "The minimum")
prod = _reduction("prod", multiply, "The product")


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean over the last axes, computed in fp32, in a new SBUF tile."""
    axes, shape = _reduced(x, axis, keepdims, "mean")
    total = _like("mean", x, "float32", shape)
    Instructions.isa.tensor_reduce(total, add, x, axes)
    dst = _like("mean", x, dtype, shape)
    count = 1
    for a in axes:
        count *= x.shape[a]
    Instructions.isa.tensor_scalar(dst, total, multiply, 1.0 / count)
    return dst


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The variance over the last axes, which are kept with extent 1, in a new SBUF tile."""
    axes, shape = _reduced(x, axis, True, "var")
    rows = x.reshape((x.shape[0], *x.shape[1 : axes[0]], -1))
    center = mean(x, axes, "float32", keepdims=True)
    apart = _like("var", x, "float32")
    count = rows.shape[-1]
    flat = apart.reshape(rows.shape)
    Instructions.isa.tensor_tensor(
        flat, rows, center.reshape((*rows.shape[:-1], 1)).broadcast(rows.ndim - 1, count), subtract
    )
    Instructions.isa.tensor_tensor(apart, apart, apart, multiply)
    total = sum(apart, axes, "float32", keepdims=True)
    dst = _like("var", x, dtype, shape)
    Instructions.isa.tensor_scalar(dst, total, multiply, 1.0 / count)
    return dst


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where every element over the last axes is not 0, in a new SBUF tile."""
    axes, shape = _reduced(x, axis, False, "all")
    truth = _like("all", x, "float32")
    Instructions.isa.tensor_scalar(truth, x, not_equal, 0.0)
    dst = _like("all", x, dtype, shape)
    Instructions.isa.tensor_reduce(dst, minimum, truth, axes)
    return dst


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum over the last axes, in a new SBUF tile."""
    axes, _ = _reduced(x, axis, True, "softmax")
    isa = Instructions.isa
    rows = (x.shape[0], *x.shape[1 : axes[0]], -1)
    view = x.reshape(rows)
    count = view.shape[-1]
    last = view.ndim - 1
    top = max(view, last, "float32", keepdims=True)
    powers = _like("softmax", view, "float32")
    isa.tensor_tensor(powers, view, top.broadcast(last, count), subtract)
    isa.activation(powers, exp, powers)
    total = sum(powers, last, "float32", keepdims=True)
    isa.reciprocal(total, total)
    dst = _like("softmax", view, dtype or x.dtype)
    isa.tensor_tensor(dst, powers, total.broadcast(last, count), multiply)
    return dst.reshape(x.shape)


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Any,
    n: float,
    epsilon: float = 1e-06,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w over the last axes, in a new SBUF tile."""
    axes, _ = _reduced(x, axis, True, "rms_norm")
    isa = Instructions.isa
    kind = compute_dtype or "float32"
    squares = _like("rms_norm", x, kind)
    isa.tensor_tensor(squares, x, x, multiply)
    total = sum(squares, axes, "float32", keepdims=True)
    isa.tensor_scalar(total, total, multiply, 1.0 / n, op1=add, operand1=epsilon)
    isa.activation(total, rsqrt, total)
    scaled = _like("rms_norm", x, kind)
    wide = total
    for a in axes:
        wide = wide.broadcast(a, x.shape[a])
    isa.tensor_tensor(scaled, x, wide, multiply)
    dst = _like("rms_norm", x, dtype)
    weights = w if w.shape == x.shape else broadcast_to(w, x.shape)
    isa.tensor_tensor(dst, scaled, weights, multiply)
    return dst


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where condition is not 0, else y, in a new SBUF tile. One of x and y may be a number."""
    isa = Instructions.isa
    tile = x if isinstance(x, NkiTensor) else y if isinstance(y, NkiTensor) else condition
    given = [t for t in (condition, x, y) if isinstance(t, NkiTensor)]
    spread = iter(given if len({t.shape for t in given}) == 1 else _spread("where", *given))
    condition, x, y = (next(spread) if isinstance(t, NkiTensor) else t for t in (condition, x, y))
    dst = _like("where", condition, dtype or tile.dtype)
    chosen = _like("where", condition, "uint8")
    isa.tensor_scalar(chosen, condition, not_equal, 0.0)
    for value, reverse in ((y, True), (x, False)):
        if not isinstance(value, NkiTensor):
            part = _like("where", condition, dst.dtype)
            isa.memset(part, value)
        elif value.dtype != dst.dtype:
            part = copy(value, dst.dtype)
        else:
            part = value
        if reverse:
            isa.tensor_copy(dst, part)
        else:
            isa.tensor_copy_predicated(dst, part, chosen)
    return dst


def broadcast_to(x: NkiTensor, shape: tuple, dtype: Any = None) -> NkiTensor:
    """x repeated along axes of extent 1, as NumPy has it, in a new SBUF tile."""
    shape = tuple(shape)
    fits = len(shape) == x.ndim and not [
        1 for n, m in zip(x.shape, shape, strict=True) if n not in (1, m)
    ]
    if not fits or (x.shape[0] != shape[0] and x.shape[0] != 1):
        raise ShapeError(
            f"nl.broadcast_to({x.describe()}, {shape})",
            rule="both have as many axes, and each is equal or 1",
            fix="add axes of extent 1 with t.expand_dim",
        )
    isa = Instructions.isa
    view = x
    for d in range(1, len(shape)):
        if view.shape[d] != shape[d]:
            view = view.broadcast(d, shape[d])
    dst = _like("broadcast_to", x, dtype, shape)
    if x.shape[0] == shape[0]:
        isa.tensor_copy(dst, view)
        return dst
    for first in range(0, shape[0], 32):
        count = shape[0] - first if shape[0] - first < 32 else 32
        isa.nc_stream_shuffle(dst[first : first + count], view, [0] * 32)
    return dst


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new axis of extent 1 at a position of the result."""
    return x.expand_dim(axis)


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The two axes of a tile swapped, in a new PSUM tile."""
    from nkisim.frontends.nki.declare import make
    from nkisim.frontends.nki.tensors.tensor import MemoryRegion

    if x.ndim != 2:
        raise ShapeError(
            f"nl.transpose of {x.describe()}", rule="it takes a 2-D tile", fix="reshape it"
        )
    dst = make((x.shape[1], x.shape[0]), x.dtype if dtype is None else dtype, MemoryRegion.psum)
    Instructions.isa.nc_transpose(dst, x)
    return dst


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y, in a new PSUM tile.

    Args:
        x: an SBUF tile (K, M).
        y: an SBUF tile (K, N), N at most 512.
        transpose_x: that x has the contraction on its partitions. It is True: NKI 0.6 does not
            transpose x, though the default is False.

    Raises:
        ParameterError: without transpose_x=True.
    """
    from nkisim.frontends.nki.declare import make
    from nkisim.frontends.nki.tensors.tensor import MemoryRegion

    if not transpose_x:
        raise ParameterError(
            "nl.matmul without transpose_x=True",
            rule="nl.matmul contracts over the partitions of both tiles, and does not transpose x",
            fix="pass transpose_x=True with an x of shape (K, M): nl.matmul(nl.copy("
            "nl.transpose(x)), y, transpose_x=True)",
        )
    dst = make((x.shape[1], y.shape[1]), "float32", MemoryRegion.psum)
    Instructions.isa.nc_matmul(dst, x, y)
    return dst


def gather_flattened(
    data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None
) -> NkiTensor:
    """data[p, indices[p, i]] in the flattened free axes, in a new SBUF tile.

    Warns of an axis other than 0: AWS's page says "axis along which to gather", but also that the
    gather is "after flattening" and from "the free dimension", and gives no example of another.
    """
    if axis != 0:
        warn(
            ParameterError(
                f"nl.gather_flattened with axis={axis}",
                rule="it gathers from the flattened free axes here, whatever axis says; what an "
                "axis other than 0 does is not documented",
                fix="leave axis out, and gather from a view whose free axes are what is meant",
            )
        )
    if isinstance(indices, NkiTensor) and indices.dtype not in INTEGERS:
        raise DTypeError(
            f"nl.gather_flattened by {indices.describe()}",
            rule="indices are of an integer type",
            fix="convert them: nl.copy(indices, nl.uint32)",
        )
    dst = _like("gather_flattened", indices, dtype or data.dtype)
    wide = indices if indices.dtype == "uint32" else copy(indices, "uint32")
    Instructions.isa.nc_n_gather(dst, data, wide)
    return dst


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with elements set to 0 at a rate, in a new SBUF tile."""
    dst = _like("dropout", x, dtype)
    Instructions.isa.dropout(dst, x, rate)
    return dst

"""Functions of `nki.language` that take several instructions: reductions, softmax, matmul and
others. Each makes a new tile, in SBUF unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import DTypeError, ParameterError, ShapeError, warn
from nkisim.frontends.nki.declare import make
from nkisim.frontends.nki.dtypes import INTEGERS, type_of
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.isa.vector.checks import axes_of
from nkisim.frontends.nki.surface.operators import (
    add,
    copy,
    exp,
    maximum,
    minimum,
    multiply,
    new_like,
    not_equal,
    rsqrt,
    spread,
    subtract,
)
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor

__all__ = [
    "all",
    "broadcast_to",
    "dropout",
    "expand_dims",
    "gather_flattened",
    "matmul",
    "max",
    "mean",
    "min",
    "prod",
    "random_seed",
    "rms_norm",
    "softmax",
    "sum",
    "transpose",
    "var",
    "where",
]


def _reduced(x: NkiTensor, axis: Any, keepdims: bool, call: str) -> tuple[tuple, tuple]:
    """(axes, shape of the result)."""
    axes = axes_of(f"nl.{call}", x, axis)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    shape = kept if keepdims else tuple(n for d, n in enumerate(x.shape) if d not in axes)
    return axes, shape if len(shape) > 1 else (x.shape[0], 1)


def _reduction(name: str, op: Callable, doc: str) -> Callable:
    def function(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        axes, shape = _reduced(x, axis, keepdims, name)
        dst = new_like(name, x, dtype, shape)
        isa.tensor_reduce(dst, op, x, axes)
        return dst

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc} over the last axes, in a new SBUF tile.\n\n    Raises:\n"
        "        ParameterError: x is no tile, or axes that are not the last ones.\n"
    )
    return function


sum = _reduction("sum", add, "The sum")
max = _reduction("max", maximum, "The maximum")
min = _reduction("min", minimum, "The minimum")
prod = _reduction("prod", multiply, "The product")


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean over the last axes, computed in fp32, in a new SBUF tile.

    Raises:
        ParameterError: x is no tile, or axes that are not the last ones.
    """
    axes, shape = _reduced(x, axis, keepdims, "mean")
    total = new_like("mean", x, "float32", shape)
    isa.tensor_reduce(total, add, x, axes)
    dst = new_like("mean", x, dtype, shape)
    count = 1
    for a in axes:
        count *= x.shape[a]
    isa.tensor_scalar(dst, total, multiply, 1.0 / count)
    return dst


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The variance over the last axes, which are kept with extent 1, in a new SBUF tile.

    Raises:
        ParameterError: x is no tile, or axes that are not the last ones.
    """
    axes, shape = _reduced(x, axis, True, "var")
    rows = x.reshape((x.shape[0], *x.shape[1 : axes[0]], -1))
    center = mean(x, axes, "float32", keepdims=True)
    apart = new_like("var", x, "float32")
    count = rows.shape[-1]
    flat = apart.reshape(rows.shape)
    isa.tensor_tensor(
        flat, rows, center.reshape((*rows.shape[:-1], 1)).broadcast(rows.ndim - 1, count), subtract
    )
    isa.tensor_tensor(apart, apart, apart, multiply)
    total = sum(apart, axes, "float32", keepdims=True)
    dst = new_like("var", x, dtype, shape)
    isa.tensor_scalar(dst, total, multiply, 1.0 / count)
    return dst


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where every element over the last axes is not 0, in a new SBUF tile.

    Raises:
        ParameterError: x is no tile, or axes that are not the last ones.
    """
    axes, shape = _reduced(x, axis, False, "all")
    truth = new_like("all", x, "float32")
    isa.tensor_scalar(truth, x, not_equal, 0.0)
    dst = new_like("all", x, dtype, shape)
    isa.tensor_reduce(dst, minimum, truth, axes)
    return dst


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum over the last axes, in a new SBUF tile.

    Raises:
        ParameterError: x is no tile, or axes that are not the last ones.
    """
    axes, _ = _reduced(x, axis, True, "softmax")
    rows = (x.shape[0], *x.shape[1 : axes[0]], -1)
    view = x.reshape(rows)
    count = view.shape[-1]
    last = view.ndim - 1
    top = max(view, last, "float32", keepdims=True)
    powers = new_like("softmax", view, "float32")
    isa.tensor_tensor(powers, view, top.broadcast(last, count), subtract)
    isa.activation(powers, exp, powers)
    total = sum(powers, last, "float32", keepdims=True)
    isa.reciprocal(total, total)
    dst = new_like("softmax", view, dtype or x.dtype)
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
    """x / sqrt(sum(x * x) / n + epsilon) * w over the last axes, in a new SBUF tile.

    Raises:
        ShapeError: w does not go with x.
        ParameterError: x is no tile, or axes that are not the last ones.
    """
    axes, _ = _reduced(x, axis, True, "rms_norm")
    kind = compute_dtype or "float32"
    squares = new_like("rms_norm", x, kind)
    isa.tensor_tensor(squares, x, x, multiply)
    total = sum(squares, axes, "float32", keepdims=True)
    isa.tensor_scalar(total, total, multiply, 1.0 / n, op1=add, operand1=epsilon)
    isa.activation(total, rsqrt, total)
    scaled = new_like("rms_norm", x, kind)
    wide = total
    for a in axes:
        wide = wide.broadcast(a, x.shape[a])
    isa.tensor_tensor(scaled, x, wide, multiply)
    dst = new_like("rms_norm", x, dtype)
    weights = w if w.shape == x.shape else broadcast_to(w, x.shape)
    isa.tensor_tensor(dst, scaled, weights, multiply)
    return dst


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where condition is not 0, else y, in a new SBUF tile. One of x and y may be a number.

    Raises:
        ShapeError: tiles whose shapes do not go together.
        ParameterError: condition is no tile.
    """
    tile = x if isinstance(x, NkiTensor) else y if isinstance(y, NkiTensor) else condition
    given = [t for t in (condition, x, y) if isinstance(t, NkiTensor)]
    parts = iter(given if len({t.shape for t in given}) == 1 else spread("where", *given))
    condition, x, y = (next(parts) if isinstance(t, NkiTensor) else t for t in (condition, x, y))
    dst = new_like("where", condition, dtype or tile.dtype)
    chosen = new_like("where", condition, "uint8")
    isa.tensor_scalar(chosen, condition, not_equal, 0.0)
    for value, reverse in ((y, True), (x, False)):
        if not isinstance(value, NkiTensor):
            part = new_like("where", condition, dst.dtype)
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
    """x repeated along axes of extent 1, as NumPy has it, in a new SBUF tile.

    Raises:
        ShapeError: another number of axes, or one that is neither equal nor of extent 1.
        ParameterError: x is no tile in SBUF or PSUM.
    """
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
    view = x
    for d in range(1, len(shape)):
        if view.shape[d] != shape[d]:
            view = view.broadcast(d, shape[d])
    dst = new_like("broadcast_to", x, dtype, shape)
    if x.shape[0] == shape[0]:
        isa.tensor_copy(dst, view)
        return dst
    for first in range(0, shape[0], 32):
        count = shape[0] - first if shape[0] - first < 32 else 32
        isa.nc_stream_shuffle(dst[first : first + count], view, [0] * 32)
    return dst


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new axis of extent 1 at a position of the result.

    Raises:
        ShapeError: no position of a free axis.
    """
    return x.expand_dim(axis)


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The two axes of a tile swapped, in a new PSUM tile.

    Args:
        x: an SBUF tile, up to 128 x 128.
        dtype: of the result; that of x when not given. Another type takes a second instruction.

    Raises:
        ShapeError: x has not two axes.
        TileSizeError: more than 128 x 128.
        MemorySpaceError: x is not in SBUF.
    """
    if x.ndim != 2:
        raise ShapeError(
            f"nl.transpose of {x.describe()}", rule="it takes a 2-D tile", fix="reshape it"
        )
    shape = (x.shape[1], x.shape[0])
    dst = make(shape, x.dtype, MemoryRegion.psum)
    isa.nc_transpose(dst, x)
    if dtype is None or type_of(dtype).name == x.dtype:
        return dst
    converted = make(shape, dtype, MemoryRegion.psum)
    isa.tensor_copy(converted, dst)
    return converted


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y, in a new PSUM tile of the type of x.

    Args:
        x: an SBUF tile (K, M). Its type is one in which the Tensor Engine adds up: float32, and
            bfloat16 on trn3.
        y: an SBUF tile (K, N), N at most 512.
        transpose_x: whether the contraction axis of x is on its partitions. It must be True:
            NKI does not transpose x, though the default is False.

    Raises:
        ParameterError: without transpose_x=True.
        TileSizeError: more rows or columns than the array of the Tensor Engine has.
        ShapeError: x and y of different K.
        DTypeError: x is of another type. A user of an inf2 with NKI 0.6 reports the compiler's
            "nc_matmul dst dtype must be float32 on gen2, got bfloat16".
    """
    if not transpose_x:
        raise ParameterError(
            "nl.matmul without transpose_x=True",
            rule="nl.matmul contracts over the partitions of both tiles, and does not transpose x",
            fix="pass transpose_x=True with an x of shape (K, M): nl.matmul(nl.copy("
            "nl.transpose(x)), y, transpose_x=True)",
        )
    machine = current().trace.machine
    kind = "float32" if x.dtype == "tfloat32" else x.dtype
    if kind not in machine.abilities.sums:
        shape = f"({x.shape[1]}, {y.shape[1]})"
        raise DTypeError(
            f"nl.matmul of {x.describe()} on {machine.name}",
            rule="its result has the type of x, and the Tensor Engine adds up in "
            + " or ".join(machine.abilities.sums),
            fix=f"declare the result: dst = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.psum), "
            "then nisa.nc_matmul(dst, x, y)",
        )
    dst = make((x.shape[1], y.shape[1]), kind, MemoryRegion.psum)
    isa.nc_matmul(dst, x, y)
    return dst


def gather_flattened(
    data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None
) -> NkiTensor:
    """data[p, indices[p, i]] in the flattened free axes, in a new SBUF tile.

    Warns of an axis other than 0: AWS's page says "axis along which to gather", but also that the
    gather is "after flattening" and from "the free dimension", and gives no example of another.

    Raises:
        DTypeError: indices of no integer type, or another dtype than that of data.
        ShapeError: data and indices of different numbers of partitions.
        ParameterError: indices are no tile.
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
    dst = new_like("gather_flattened", indices, dtype or data.dtype)
    wide = indices if indices.dtype == "uint32" else copy(indices, "uint32")
    isa.nc_n_gather(dst, data, wide)
    return dst


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with elements set to 0 at a rate, in a new SBUF tile.

    Raises:
        ShapeError: a rate that is neither a number nor one element a partition.
        ParameterError: x is no tile in SBUF or PSUM.
    """
    dst = new_like("dropout", x, dtype)
    isa.dropout(dst, x, rate)
    return dst


def random_seed(seed: NkiTensor) -> None:
    """Seed the random number generator.

    Args:
        seed: a (1, 1) tile of a 32-bit type, in SBUF or PSUM.

    Raises:
        DTypeError: a seed that has not 32 bits.
        ParameterError: no (1, 1) tile in SBUF or PSUM.
    """
    isa.set_rng_seed(seed)

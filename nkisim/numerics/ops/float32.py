"""The common part of the fp32 engines: operators that read any type, compute in fp32 and write
fp32."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np

from nkisim.ir.dtypes import F32, FLOATS, cast_into
from nkisim.numerics import alu

_DIRECT = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "power", "divide", "mod", "fmod"}
    | {"exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt", "square", "abs", "sign"}
    | {"reciprocal", "floor", "ceil", "trunc"}
)


# Types that NumPy converts bit by bit: for many elements, a table of all their values is faster.
_CODES = {
    np.dtype(ml_dtypes.float8_e4m3): np.uint8,
    np.dtype(ml_dtypes.float8_e4m3fn): np.uint8,
    np.dtype(ml_dtypes.float8_e5m2): np.uint8,
    np.dtype(np.float16): np.uint16,
}
_MANY = 4096  # elements


@functools.cache
def _values(dtype: np.dtype) -> np.ndarray:
    """fp32 of each code of a type of one or two bytes."""
    code = _CODES[dtype]
    return np.arange(np.iinfo(code).max + 1).astype(code).view(dtype).astype(F32)


def as_f32(x: np.ndarray) -> np.ndarray:
    """`x` in fp32; itself when it is."""
    if x.dtype == F32:
        return x
    code = _CODES.get(x.dtype)
    if code is None or x.size < _MANY or x.strides[-1] != x.itemsize:
        return x.astype(F32)
    return _values(x.dtype).take(x.view(code), mode="clip")


def operator(name: str) -> Callable[..., None]:
    """`f(out, *operands)` that computes operator `name` in fp32. `out` may be any float array and
    may be an operand."""
    fn = alu.ALU[name].fn
    if name in _DIRECT:
        return _long_loops(lambda out, *ins: fn(*ins, out=out, dtype=F32, casting="unsafe"))
    return lambda out, *ins: np.copyto(out, fn(*map(as_f32, ins)), casting="unsafe")


# Types that move a few neighbouring elements as one, by their bytes together.
_TOGETHER = {4: np.uint32, 8: np.uint64, 16: np.complex128}


def _long_loops(run: Callable[..., None]) -> Callable[..., None]:
    """`run(out, *ins)`, an elementwise computation, with a long inner loop.

    NumPy's inner loop walks along the last axis. Where that holds two or four elements and does not
    join the axis before it, as the x and y among four coordinates do, a copy with both as one
    element costs a third of what the short loops do.
    """

    def loop(out: np.ndarray, *ins: np.ndarray) -> None:
        few = out.shape[-1] if out.ndim > 2 else 0
        if few not in (2, 4) or out.shape[-2] < few or all(map(_joined, (out, *ins))):
            run(out, *ins)
            return
        packed = [_packed(x) for x in ins]
        if _joined(out):
            run(out, *packed)
            return
        value = np.empty(out.shape, out.dtype)
        run(value, *packed)
        np.copyto(out, value)

    return loop


def _joined(x: np.ndarray | np.float32) -> bool:
    """Whether NumPy can walk over the last two axes as over one."""
    return x.ndim < 2 or x.strides[-2] == x.shape[-1] * x.strides[-1]


def _packed(x: np.ndarray | np.float32) -> np.ndarray | np.float32:
    """`x`, or a copy whose last two axes join."""
    if _joined(x) or x.strides[-1] != x.itemsize or x.itemsize * x.shape[-1] not in _TOGETHER:
        return x
    together = x.view(_TOGETHER[x.itemsize * x.shape[-1]])
    return np.ascontiguousarray(together).view(x.dtype)


# Elements that a step of several passes handles at a time: 256 KiB of fp32, which stays in cache.
_PASS = 1 << 16


def by_rows(run: Callable[..., None]) -> Callable[..., None]:
    """`run(out, *ins)`, an elementwise computation of several passes, on a few rows at a time.

    Joined instructions cover many tiles, and passing over all of them several times would be as
    slow as memory is. `ins` have the shape of `out`.
    """

    def loop(out: np.ndarray, *ins: np.ndarray) -> None:
        rows = out.shape[0] * _PASS // max(out.size, 1)
        if rows >= out.shape[0] or any(_shifted(out, x) for x in ins):
            run(out, *ins)
            return
        rows = max(rows, 1)
        for start in range(0, out.shape[0], rows):
            part = slice(start, start + rows)
            run(out[part], *(x[part] for x in ins))

    return loop


def _shifted(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays may share memory at different coordinates."""
    if not np.may_share_memory(a, b):
        return False
    return a.strides != b.strides or a.ctypes.data != b.ctypes.data


def scratch(out: np.ndarray, *keep: object) -> np.ndarray:
    """fp32 memory for intermediate values: `out` itself when its type allows and writing it does
    not disturb the operands `keep`, which are still to be read."""
    if out.dtype == F32 and not any(
        isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in keep
    ):
        return out
    return np.empty(out.shape, F32)


def converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`x` in a type: as it is in its own, in another by way of fp32."""
    if x.dtype == dtype:
        return x
    out = np.empty(x.shape, dtype)
    write(out, as_f32(x))
    return out


def write(out: np.ndarray, values: np.ndarray, where: np.ndarray | None = None) -> None:
    """Round fp32 `values` once into `out`, where `where` is true."""
    if values is out:
        return
    if where is not None:
        kept = np.empty(out.shape, out.dtype)
        write(kept, values)
        np.copyto(out, kept, where=where)
    elif out.dtype in FLOATS:
        np.copyto(out, values, casting="unsafe")
    else:
        cast_into(out, values)

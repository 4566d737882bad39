"""What the fp32 engines share: operators that read any type, compute in fp32 and write fp32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nkisim import alu
from nkisim.dtypes import F32, FLOATS, cast_into

_DIRECT = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "power", "divide", "mod", "fmod"}
    | {"exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt", "square", "abs", "sign"}
    | {"reciprocal", "negative", "floor", "ceil", "trunc"}
)


def as_f32(x: np.ndarray) -> np.ndarray:
    """`x` in fp32; itself when it is."""
    return x if x.dtype == F32 else x.astype(F32)


def operator(name: str) -> Callable[..., None]:
    """`f(out, *operands)` that computes operator `name` in fp32. `out` may be any float array and
    may be an operand."""
    fn = alu.ALU[name].fn
    if name in _DIRECT:
        return lambda out, *ins: fn(*ins, out=out, dtype=F32, casting="unsafe")
    return lambda out, *ins: np.copyto(out, fn(*map(as_f32, ins)), casting="unsafe")


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

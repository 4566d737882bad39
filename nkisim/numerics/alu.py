"""Elementwise arithmetic as the engines do it: fp32 inside, one rounding on the way out.

Integers are no exception, of whatever type: arithmetic operators "accept any valid NKI data type
and convert input elements into float32" (NKI API common fields). The one documented exception is
the arithmetic of 32-bit integers that the GpSimd Engine does natively; a front end says so of an
instruction.

`ALU` holds the operators that Vector, Scalar and GpSimd share. `bind` turns an operator and the
operand types into one NumPy call that writes the result in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.errors import DTypeError
from nkisim.ir.dtypes import BOOL, F32, FLOATS, INTEGERS, cast_into, compute_dtype
from nkisim.numerics import activations


@dataclass(frozen=True)
class AluOp:
    """An operator.

    Attributes:
        name: as in `nki.language`.
        fn: the NumPy function; a ufunc where NumPy has one.
        kind: "arith", "bits" (integers only), "compare" (gives bool), "logic" (gives bool), or
            "float" (in fp32, of integers too).
    """

    name: str
    fn: Callable
    kind: str = "arith"


def _unary_table() -> list[AluOp]:
    composed = {name: getattr(activations, name) for name in activations.__all__}
    plain = ["exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt"]
    table = [AluOp(name, getattr(np, name), "float") for name in plain]
    table += [
        AluOp("reciprocal", np.reciprocal, "float"),
        AluOp("relu", activations.relu),
        AluOp("square", np.square),
        AluOp("abs", np.absolute),
        AluOp("negative", _negative),
        AluOp("sign", np.sign),
        AluOp("floor", np.floor, "float"),
        AluOp("ceil", np.ceil, "float"),
        AluOp("trunc", np.trunc, "float"),
        AluOp("invert", np.invert, "bits"),
        AluOp("logical_not", np.logical_not, "logic"),
    ]
    table += [AluOp(name, fn, "float") for name, fn in composed.items() if name != "relu"]
    return table


def _negative(x: np.ndarray) -> np.ndarray:
    """-x, in new memory: np.negative from a stride of 16 bytes to another strided array writes
    wrong elements (NumPy 2.4.6, x86)."""
    return np.negative(x)


def _integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x ** y in integers that wrap around; negative powers, which NumPy refuses, in fp64."""
    whole = np.power(x, np.maximum(y, 0))
    if (y >= 0).all():
        return whole
    with np.errstate(all="ignore"):
        fraction = np.power(x.astype(np.float64), y)
    rounded = np.empty_like(whole)
    cast_into(rounded, fraction)
    return np.where(y >= 0, whole, rounded)


def _whole_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y without its fraction. NKI's documentation says nothing of integers divided by integers;
    AWS's resize kernel (nki-samples, vision.py) takes rows from such a quotient, and would read
    outside of its input if it were rounded up."""
    return np.trunc(np.divide(x, y))


def _logical_right_shift(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x >> y with zeros from the left: the engines have no arithmetic right shift (SDK 2.26)."""
    bits = np.dtype(f"u{x.itemsize}")
    return np.right_shift(x.view(bits), y.astype(bits)).view(x.dtype)


def _abs_max(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The operand of larger magnitude, by element; y if they are equal in magnitude."""
    return np.where(np.abs(x) > np.abs(y), x, y)


def _abs_min(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The operand of smaller magnitude, by element; y if they are equal in magnitude."""
    return np.where(np.abs(x) < np.abs(y), x, y)


def _binary_table() -> list[AluOp]:
    arith = ["add", "subtract", "multiply", "maximum", "minimum", "power", "mod", "fmod"]
    compare = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
    table = [AluOp(name, getattr(np, name)) for name in arith]
    table.append(AluOp("divide", np.divide, "float"))
    table += [AluOp(name, getattr(np, name), "compare") for name in compare]
    table += [AluOp(f"logical_{n}", getattr(np, f"logical_{n}"), "logic") for n in _LOGIC]
    table += [AluOp(f"bitwise_{n}", getattr(np, f"bitwise_{n}"), "bits") for n in _LOGIC]
    table.append(AluOp("left_shift", np.left_shift, "bits"))
    table.append(AluOp("right_shift", _logical_right_shift, "bits"))
    table += [AluOp("abs_max", _abs_max), AluOp("abs_min", _abs_min)]
    return table


_LOGIC = ("and", "or", "xor")
_OF_TRUTH_VALUES = frozenset({"invert", "bitwise_and", "bitwise_or", "bitwise_xor"})
ALU: dict[str, AluOp] = {op.name: op for op in _unary_table() + _binary_table()}

# What nisa instructions take as op=: the tables of supported math operators and of activation
# functions (NKI API common fields, SDK 2.26). `divide`, for one, is no operator of an engine.
BITVEC = frozenset(
    {"invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
)
UNARY_ALU = frozenset({"invert", "logical_not", "rsqrt", "reciprocal", "abs"})
ALU_OPERATORS = (
    BITVEC
    | UNARY_ALU
    | {"add", "subtract", "multiply", "maximum", "minimum", "power"}
    | {"equal", "not_equal", "greater_equal", "greater", "less_equal", "less"}
    | {"logical_and", "logical_or", "logical_xor"}
)
REDUCTIONS = frozenset(
    {"bitwise_and", "bitwise_or", "bitwise_xor", "add", "subtract", "multiply"}
    | {"maximum", "minimum", "logical_and", "logical_or", "logical_xor"}
)
ACTIVATIONS = frozenset(
    {"copy", "square", "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh", "tanh", "exp"}
    | {"gelu_apprx_sigmoid", "silu", "silu_dx", "softplus", "mish", "erf", "erf_dx", "log"}
    | {"sin", "arctan", "sqrt", "rsqrt", "reciprocal", "sign", "abs"}
)
COMPARISONS = frozenset({"equal", "less", "less_equal", "greater", "greater_equal"})


def check_operand_types(name: str, dtypes: tuple[np.dtype, ...]) -> None:
    """Raises DTypeError when a bit operation is given something that is not an integer, or
    integers that no common type holds."""
    if ALU[name].kind != "bits":
        return
    for dt in dtypes:
        if dt not in INTEGERS and dt != BOOL:
            raise DTypeError(
                f"{name} on a {dt} operand",
                rule="bit operations treat elements as bit patterns and want integer types",
                fix="reinterpret or convert the tile to an integer type first, and write a number "
                "as an integer",
            )
    if bits_dtype(*dtypes) == F32:
        raise DTypeError(
            f"{name} of " + " and ".join(map(str, dtypes)),
            rule="there is no 64-bit integer to hold both types",
            fix="convert one of the tiles to the type of the other: nl.copy(t, dtype=nl.uint32)",
        )


def bits_dtype(*dtypes: np.dtype) -> np.dtype:
    """The type that bit operators work in: that of arithmetic, and for int32 with uint32, which no
    type of 64 bits holds, the first operand's. It is float32 where there is none: uint32 with int8.
    """
    wide = compute_dtype(*dtypes)
    return dtypes[0] if wide == F32 and WIDE.issuperset(dtypes) else wide


def bind(
    name: str, out: np.dtype, ins: tuple[np.dtype, ...], native: bool = False
) -> Callable[..., None]:
    """`f(out_view, *in_views)` that computes operator `name` in the engine's precision.

    Args:
        name: key in ALU.
        out: dtype of the output.
        ins: dtypes of the operands, scalars included.
        native: whether all of them are 32-bit integers, computed as such.
    """
    op = ALU[name]
    fn = op.fn
    if native and op.kind in ("arith", "compare"):
        return _native(_integer_power if name == "power" else fn, out, ins)
    if op.kind in ("compare", "logic"):
        direct = out == BOOL and all(dt == ins[0] for dt in ins)
        if op.kind == "compare" and ins[0] in WIDE:
            direct = False
        return _into(fn) if direct and isinstance(fn, np.ufunc) else _via(fn, F32)
    if op.kind == "bits":
        wide = bits_dtype(*ins)
        if wide == BOOL and name not in _OF_TRUTH_VALUES:
            wide = np.dtype(np.uint8)
        if out == wide and isinstance(fn, np.ufunc):
            return _into(fn) if all(dt == wide for dt in ins) else _rounding(fn, wide)
        return _patterns(fn, wide)
    if name == "divide" and out in INTEGERS and not any(dt in FLOATS for dt in ins):
        fn = _whole_quotient
    if isinstance(fn, np.ufunc) and out in FLOATS:
        same = out == F32 and all(dt == F32 for dt in ins)
        return _into(fn) if same else _rounding(fn, F32)
    return _via(fn, F32)


WIDE = frozenset({np.dtype(np.int32), np.dtype(np.uint32)})


def _native(fn: Callable, out: np.dtype, ins: tuple[np.dtype, ...]) -> Callable[..., None]:
    """In 32-bit integers, which wrap around; in 64 bits where signed meets unsigned."""
    wide = ins[0] if all(dt == ins[0] for dt in ins) else np.dtype(np.int64)
    return _into(fn) if out == wide and isinstance(fn, np.ufunc) else _patterns(fn, wide)


def _patterns(fn: Callable, wide: np.dtype) -> Callable[..., None]:
    """Compute in an integer type, and write as many of the low bits as the output has."""
    return lambda out, *ins: np.copyto(
        out, fn(*(np.asarray(x).astype(wide, copy=False) for x in ins)), casting="unsafe"
    )


def _into(fn: np.ufunc) -> Callable[..., None]:
    """Every operand already has the type that the engine computes in."""
    if fn.nin == 2:
        return lambda out, a, b: fn(a, b, out=out)
    return lambda out, a: fn(a, out=out)


def _rounding(fn: np.ufunc, wide: np.dtype) -> Callable[..., None]:
    """NumPy converts blockwise to `wide`, computes, and rounds once into the output."""
    return lambda out, *ins: fn(*ins, out=out, dtype=wide, casting="unsafe")


def _via(fn: Callable, wide: np.dtype) -> Callable[..., None]:
    """Compute in `wide`, then convert: for outputs of another kind, and for composed functions."""
    return lambda out, *ins: cast_into(
        out, fn(*(np.asarray(x).astype(wide, copy=False) for x in ins))
    )

"""The data types of a NeuronCore: names, promotion, and how arithmetic and casts round.

Engines compute in fp32 and round once on output; bit operations, and arithmetic of 32-bit integers
on the GpSimd Engine, stay integer. bf16 and fp8 come from ml_dtypes, with the bit layouts the
hardware uses.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nkisim.errors import DTypeError, UnsupportedError

bool_ = np.bool_
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
int8, int16, int32 = np.int8, np.int16, np.int32
float16, float32 = np.float16, np.float32
bfloat16 = ml_dtypes.bfloat16
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e5m2 = ml_dtypes.float8_e5m2

F32 = np.dtype(np.float32)
_FP8 = frozenset(np.dtype(t) for t in (float8_e4m3, float8_e5m2))
_HALF = frozenset(np.dtype(t) for t in (float16, bfloat16))
FLOATS = frozenset({F32, np.dtype(ml_dtypes.float8_e4m3fn)}) | _FP8 | _HALF
_INT_TYPES = (uint8, uint16, uint32, int8, int16, int32)
INTEGERS = frozenset(np.dtype(t) for t in _INT_TYPES)
BOOL = np.dtype(np.bool_)
SUPPORTED = frozenset({F32, BOOL}) | _FP8 | _HALF | INTEGERS  # by `neuronxcc.nki`

_BY_NAME = {dt.name: dt for dt in SUPPORTED}


def check_byte_order(dtype: np.dtype, what: str) -> None:
    """Raises DTypeError for a type with the bytes of each number in the other order."""
    if not dtype.isnative:
        raise DTypeError(
            f"{what} {dtype.str} has the bytes of each number in the other order",
            rule="tensors hold numbers in the byte order of the machine",
            fix="convert the array: a.astype(a.dtype.newbyteorder('='))",
        )


def as_dtype(dtype: object, what: str = "dtype") -> np.dtype:
    """The NumPy dtype of `dtype` (a NumPy or `nki.language` type, or its name).

    Raises:
        DTypeError: the NeuronCore has no such type (64-bit types, complex, strings).
    """
    if isinstance(dtype, np.dtype) and dtype in SUPPORTED:
        return dtype
    try:
        found = _BY_NAME.get(dtype) if isinstance(dtype, str) else None
        found = found or (None if dtype is None else np.dtype(dtype))  # None is float64 to NumPy
    except TypeError:
        found = None
    if found is not None and found.newbyteorder("=") in SUPPORTED:
        check_byte_order(found, what)
    is_type = isinstance(dtype, type | np.dtype)
    if not is_type and isinstance(getattr(dtype, "shape", None), tuple):
        raise DTypeError(
            f"{what} is a {type(dtype).__name__} of shape {dtype.shape}, and no type",
            rule="a type is one of nki.language, or NumPy's; a tensor has one",
            fix="write its type: x.dtype",
        )
    if found is None or found not in SUPPORTED:
        narrower = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
        hint = narrower.get(getattr(found, "name", ""), "one of " + ", ".join(sorted(_BY_NAME)))
        if found is not None and found.name.startswith("void"):  # nl.tfloat32: no type of NumPy
            raise UnsupportedError(
                f"{what} tfloat32",
                rule="this simulator has no tfloat32 tiles",
                fix="use float32: tfloat32 has its range, and 10 bits of mantissa in place of 23",
            )
        if type(dtype).__module__ == "torch":
            known = str(dtype).removeprefix("torch.")
            if known in _BY_NAME:
                raise DTypeError(
                    f"{what} {dtype} is PyTorch's",
                    rule="kernels name types of nki.language, or NumPy's",
                    fix=f"write nl.{known}",
                )
        raise DTypeError(
            f"{what} {found.name if found is not None else dtype!r} does not exist on a NeuronCore",
            rule="tensors hold 8-, 16- and 32-bit types only",
            fix=f"convert to {hint}",
        )
    return found


def weak_scalar_dtype(value: object) -> np.dtype:
    """The type a Python or NumPy scalar brings to promotion.

    Python scalars are weak: bool, int and float count as uint8, int32 and float32. NumPy scalars
    keep their own type, but 64-bit ones count as their 32-bit kin, which is what exists. An int
    that only uint32 can hold counts as that.
    """
    if isinstance(value, (bool, np.bool_)):
        return np.dtype(uint8)
    if isinstance(value, np.generic) and value.dtype in SUPPORTED:
        return value.dtype
    if isinstance(value, (int, np.integer)):
        return np.dtype(int32 if value < 2**31 else uint32)
    return F32


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The result type of arithmetic on `a` and `b` (NKI type promotion, SDK 2.26 common fields)."""
    if a == b:
        return a
    a_float, b_float = a in FLOATS, b in FLOATS
    if a_float != b_float:
        return a if a_float else b
    if a_float:
        if a in _FP8 and b in _FP8:
            return np.dtype(bfloat16)
        if a in _FP8 or b in _FP8:
            return b if a in _FP8 else a
        return F32  # float32 with anything, or float16 with bfloat16
    wide = np.promote_types(a, b)
    return wide if wide in SUPPORTED else F32  # int32 with uint32: there is no int64


def compute_dtype(*dtypes: np.dtype) -> np.dtype:
    """The type an engine computes in: fp32 as soon as one operand floats, else the integer type."""
    if any(dt in FLOATS for dt in dtypes):
        return F32
    out = dtypes[0]
    for dt in dtypes[1:]:
        out = promote(out, dt)
    return out


def check_constant(what: str, value: object, dtype: np.dtype) -> None:
    """Raises DTypeError if an integer constant has more bits than `dtype`.

    Its bits are what is written: -1 in an unsigned type is all ones.
    """
    if dtype not in INTEGERS or not isinstance(value, int | np.integer):
        return
    low, high = -(1 << 8 * dtype.itemsize - 1), (1 << 8 * dtype.itemsize) - 1
    if not low <= value <= high:
        raise DTypeError(
            f"{what}: value {value} in {dtype.name}",
            rule=f"the bits of a constant fit in its type: {low} to {high} in {dtype.name}",
            fix="give a number that the type holds, or a wider type",
        )


def cast_into(out: np.ndarray, values: np.ndarray) -> None:
    """Write `values` into `out`, rounding once to `out`'s type.

    It rounds to nearest, ties to even. What an integer type does not hold saturates, whatever type
    it comes from, since the engines convert by way of fp32: AWS's release notes (NKI 0.6.0, SDK
    2.32) say both of the hardware, and correct their own simulator in it. Of NaN they say nothing;
    here it gives 0.
    """
    if values.dtype in INTEGERS and out.dtype in INTEGERS and values.dtype != out.dtype:
        info = np.iinfo(out.dtype)
        values = np.clip(values.astype(np.int64), info.min, info.max)
    elif values.dtype.kind not in "iub" and out.dtype in INTEGERS:
        info = np.iinfo(out.dtype)
        wide = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        values = np.clip(np.rint(wide), info.min, info.max)
    np.copyto(out, values, casting="unsafe")


def poison(dtype: np.dtype) -> object:
    """The value that stands for undefined memory: NaN, or the lowest integer."""
    if dtype in FLOATS:
        return np.nan
    return True if dtype == np.bool_ else np.iinfo(dtype).min

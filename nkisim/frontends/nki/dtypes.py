"""Types of `import nki`: strings, each with the NumPy type that holds its elements.

The packed types hold four elements in one of 32 bits (16 for fp4), and tfloat32 is stored in full
fp32 precision. For the instruction stream a packed element is an unsigned integer of its size.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from nkisim.errors import DTypeError
from nkisim.frontends.nki import releases
from nkisim.ir.dtypes import check_byte_order


class Type(NamedTuple):
    """A type.

    Attributes:
        name: as in `nki.language`.
        stored: what holds an element in the instruction stream.
        packed: the type of four elements packed in one; None for the others.
    """

    name: str
    stored: np.dtype
    packed: np.dtype | None = None

    @property
    def itemsize(self) -> int:
        """Bytes an element, or a packed four, takes."""
        return self.stored.itemsize


WIDE = ("int64", "uint64")  # of NKI 0.7: DMA moves them, and scalars are loaded from them


def _types() -> dict[str, Type]:
    plain = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32")
    types = [Type(n, np.dtype(n)) for n in (*plain, *WIDE)]
    types += [
        Type("bool", np.dtype(np.bool_)),
        Type("bfloat16", np.dtype(ml_dtypes.bfloat16)),
        Type("tfloat32", np.dtype(np.float32)),
        Type("float8_e4m3", np.dtype(ml_dtypes.float8_e4m3)),
        Type("float8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn)),
        Type("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
        Type("float8_e8m0fnu", np.dtype(np.uint8)),
    ]
    for name, stored, of in (
        ("float8_e5m2_x4", np.uint32, ml_dtypes.float8_e5m2),
        ("float8_e4m3fn_x4", np.uint32, ml_dtypes.float8_e4m3fn),
        ("float4_e2m1fn_x4", np.uint16, ml_dtypes.float4_e2m1fn),
    ):
        types.append(Type(name, np.dtype(stored), np.dtype(of)))
    return {t.name: t for t in types}


TYPES = _types()
FLOATS = frozenset(
    {"float16", "bfloat16", "float32", "tfloat32"} | {"float8_e4m3", "float8_e4m3fn", "float8_e5m2"}
)
FP8 = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
PACKED = frozenset(n for n, t in TYPES.items() if t.packed is not None)

_ALIASES = {
    "bool_": "bool",
    "float8e4": "float8_e4m3",
    "float8e5": "float8_e5m2",
    "torch.half": "float16",
}
_NARROWER = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
_known: dict[object, Type] = {}


def type_of(dtype: object, what: str = "dtype") -> Type:
    """The type that `dtype` names: a string of `nki.language`, or a type of NumPy, ml_dtypes,
    PyTorch or JAX.

    Raises:
        DTypeError: the NeuronCore has no such type.
    """
    if type(dtype) is str:
        found = TYPES.get(dtype)
        if found is not None and dtype not in WIDE:
            return found
    try:
        found = _known.get(dtype)
    except TypeError:  # not hashable: no type
        raise _no_type(dtype, what) from None
    if found is None:
        found = _known[dtype] = _look_up(dtype, what)
    if found.name in WIDE and not releases.has(f"nl.{found.name}"):
        raise _no_type(found.name, what)
    return found


def _look_up(dtype: object, what: str) -> Type:
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, np.dtype) and dtype.names:
        name = next((n for n in PACKED if dtype == packed_numpy(n)), str(dtype))
    elif type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
    elif dtype is None:
        raise _no_type(dtype, what)
    else:
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError):
            name = getattr(dtype, "__name__", "")
    name = _ALIASES.get(name, name)
    if name not in TYPES:
        raise _no_type(name or dtype, what)
    if isinstance(dtype, np.dtype):
        check_byte_order(dtype, what)
    return TYPES[name]


def as_integers(dtype: str) -> str:
    """How to have the bits of a type as integers, which bit operators take: a message's fix."""
    bits = 8 * TYPES[dtype].itemsize
    return f"view the bits as integers of the same size: t.view(nl.uint{bits})"


def packed_numpy(name: str) -> np.dtype:
    """What an array holds that is passed as a packed type: a record of four elements, or of the
    16 bits that hold four of 4 bits, the first in the lowest. Its field has the type's name."""
    kind = TYPES[name]
    if kind.packed is None:
        return kind.stored
    if kind.stored.itemsize < 4 * kind.packed.itemsize:  # NumPy has no smaller element than a byte
        return np.dtype([(name, kind.stored)])
    return np.dtype([(name, kind.packed, (4,))])


def _no_type(dtype: object, what: str) -> DTypeError:
    given = dtype if isinstance(dtype, str) else repr(dtype)
    known = [name for name in sorted(TYPES) if releases.has(f"nl.{name}")]
    return DTypeError(
        f"{what} {given}",
        rule="tensors hold types of nki.language: " + ", ".join(known),
        fix=f"use nl.{_NARROWER[given]}" if given in _NARROWER else "name one of these",
    )

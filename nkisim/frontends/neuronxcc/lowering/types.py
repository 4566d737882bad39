"""Names of `nki.language` about data types: constants, limits and casts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nkisim.errors import DTypeError
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import FLOATS, as_dtype

# NumPy has no 19-bit float: like the SDK, an opaque type of four bytes. No tile has it here.
tfloat32 = np.dtype("V4")


class fp32:
    """Constants of float32."""

    min = -3.4028234663852886e38  # bit pattern 0xff7fffff


class bfp16:
    """Constants of bfloat16."""

    min = float("-inf")  # bit pattern 0xff80, which the SDK documents as the minimum


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point type (`.min`, `.max`, `.eps`, ...), as `numpy.finfo` gives.

    Raises:
        DTypeError: not a floating-point type of a NeuronCore.
    """
    kind = as_dtype(dtype)
    if kind not in FLOATS:
        raise DTypeError(
            f"nl.finfo({dtype!r})",
            rule="finfo is about floating-point types",
            fix="use numpy.iinfo for integers",
        )
    return ml_dtypes.finfo(kind)


def static_cast(input_data: Any, dtype: Any) -> Any:
    """A number as a NumPy scalar of another type, or a copy of a tile in it."""
    kind = as_dtype(dtype)
    if isinstance(input_data, Tensor):
        return copy(input_data, dtype=kind)
    return np.asarray(input_data).astype(kind)[()]

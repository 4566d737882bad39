"""Zero-copy NumPy views of access patterns."""

from __future__ import annotations

import numpy as np

from nkisim.errors import OutOfBoundsError
from nkisim.ir.access import AccessPattern


def view_of(flat: np.ndarray, tensor: AccessPattern) -> np.ndarray:
    """The elements of `flat` (one entry an element of the tensor's buffer) that `tensor` names.

    Raises:
        OutOfBoundsError: `tensor` reaches past the memory of its buffer, check or no check.
    """
    if 0 in tensor.shape:
        return np.empty(tensor.shape, flat.dtype)
    item = flat.itemsize
    try:
        return np.ndarray(
            tensor.shape,
            flat.dtype,
            flat,
            tensor.offset * item,
            tuple(s * item for s in tensor.strides),
        )
    except ValueError:
        raise OutOfBoundsError(
            f"{tensor.describe()} reaches past the end of its memory",
            rule="the simulator has nothing there to read or write, even with bounds unchecked",
            fix="keep the indices inside, or mask them",
        ) from None

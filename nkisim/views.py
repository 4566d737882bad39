"""Zero-copy NumPy views of access patterns."""

from __future__ import annotations

import numpy as np

from nkisim.tensor import Tensor


def view_of(flat: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The elements of `flat` (one entry an element of the tensor's buffer) that `tensor` names."""
    item = flat.itemsize
    return np.ndarray(
        tensor.shape,
        flat.dtype,
        flat,
        tensor.offset * item,
        tuple(s * item for s in tensor.strides),
    )

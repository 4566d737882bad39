"""Zero-copy NumPy views of access patterns."""

from __future__ import annotations

import functools

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


def overlap(a: AccessPattern, b: AccessPattern) -> bool:
    """Whether two views share bytes of memory."""
    if a.buffer is not b.buffer or 0 in a.shape or 0 in b.shape:
        return False
    first, second = a.itemsize, b.itemsize
    return _share(
        (a.shape, tuple([s * first for s in a.strides]), first),
        (b.shape, tuple([s * second for s in b.strides]), second),
        b.offset * second - a.offset * first,
    )


@functools.lru_cache(maxsize=4096)
def _share(a: tuple, b: tuple, distance: int) -> bool:
    """`overlap` of two (shape, byte strides, bytes an element), the second `distance` bytes behind
    the first."""
    views = []
    ranges = []
    for (shape, strides, item), start in ((a, 0), (b, distance)):
        steps = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
        ranges.append(
            (start + sum(min(s, 0) for s in steps), start + sum(max(s, 0) for s in steps))
        )
        views.append((shape, strides, item, start))
    low = min(r[0] for r in ranges)
    if ranges[0][1] + a[2] <= ranges[1][0] or ranges[1][1] + b[2] <= ranges[0][0]:
        return False
    memory = np.empty(max(r[1] for r in ranges) - low + 8, np.uint8)
    x, y = (
        np.ndarray(shape, f"V{item}", memory, start - low, strides)
        for shape, strides, item, start in views
    )
    try:
        return np.shares_memory(x, y, 100_000)
    except np.exceptions.TooHardError:
        return True

"""Exercises that check themselves.

`check` runs a candidate and a NumPy reference on the same data and says in one or two lines
whether they agree, and if not, where they differ first. It never raises for a wrong answer: an
exercise that is not solved yet is not an error. Its result is true when the answer is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Verdict:
    """The outcome of a check: true when right; prints as the sentence that says so.

    Attributes:
        right: whether the candidate agrees with the reference.
        message: what was found.
    """

    def __init__(self, right: bool, message: str) -> None:
        self.right = right
        self.message = message

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return f"{'Right' if self.right else 'Not yet'}: {self.message}"


def check(
    candidate: Callable[..., Any],
    reference: Callable[..., np.ndarray],
    *args: Any,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Verdict:
    """Compare `candidate(*args)` with `reference(*args)`.

    Args:
        candidate: the answer: a kernel, or a function that calls one.
        reference: the specification, on NumPy arrays.
        *args: the data. The candidate gets them as they are, the reference as NumPy arrays.
        rtol, atol: allowed differences, relative and absolute; none by default.

    Returns:
        A Verdict. A candidate that raises, returns None, another shape or another dtype is not
        right yet.
    """
    expected = np.asarray(reference(*(_numpy(a) for a in args)))
    try:
        result = candidate(*args)
    except Exception as error:  # whatever the reader's code does wrong is the answer's problem
        return Verdict(False, f"{type(error).__name__}: {error}")
    if result is None:
        return Verdict(False, "the answer returns None. Does it return its output?")
    got = _numpy(result)
    if got.shape != expected.shape:
        return Verdict(False, f"the shape is {got.shape}, and should be {expected.shape}.")
    if got.dtype != expected.dtype:
        return Verdict(False, f"the dtype is {got.dtype}, and should be {expected.dtype}.")
    near = np.isclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
    )
    if near.all():
        return Verdict(True, f"all {got.size:,} elements agree.")
    where = tuple(int(i) for i in np.argwhere(~near)[0])
    wrong = int((~near).sum())
    return Verdict(
        False,
        f"{wrong:,} of {got.size:,} elements differ. The first is {list(where)}: "
        f"{float(got[where]):.6g}, and should be {float(expected[where]):.6g}.",
    )


def _numpy(value: Any) -> Any:
    """A NumPy array of an array of any framework; anything else as it is."""
    if hasattr(value, "detach"):  # torch, also on another device
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes

            return value.float().numpy().astype(ml_dtypes.bfloat16)
        return value.numpy()
    return np.asarray(value) if hasattr(value, "shape") else value

"""Gradients by central differences, of which float64 makes sharp ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np


def by_differences(
    loss: Callable[..., float], arrays: Sequence[np.ndarray], step: float = 1e-6
) -> Iterator[np.ndarray]:
    """The gradient of `loss(*arrays)`, a number, for each of some arrays in float64."""
    for which, array in enumerate(arrays):
        gradient = np.empty_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for h in (step, -step):
                moved = [x.copy() for x in arrays]
                moved[which][place] += h
                sides.append(loss(*moved))
            gradient[place] = (sides[0] - sides[1]) / (2 * step)
        yield gradient


def assert_is_gradient(
    found: Sequence[np.ndarray], loss: Callable[..., float], arrays: Sequence[np.ndarray]
) -> None:
    """Compares gradients for each array with `by_differences`."""
    for one, other in zip(found, by_differences(loss, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)

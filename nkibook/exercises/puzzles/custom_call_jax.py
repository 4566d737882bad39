"""Exercises of the page on the life of a custom call."""

import numpy as np

import kernels
from nkibook.exercises import exercise


def _traces(answer, w, grad):
    """The result, and how often the kernel was traced, which only nkisim counts."""
    result, step = answer(w, grad)
    return (result, step.cache_info().misses) if kernels.backend == "nkisim" else result


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=3, run=_traces, framework="jax")
def descend(w, grad):
    for i in range(5):
        w = w - grad * np.float32(0.1 / (i + 1))
    return (w, 1) if kernels.backend == "nkisim" else w  # one trace


@exercise(
    ((4, 8), (2.0, 3.0)),
    ((3, 5), (1.5, -1.0)),
    lines=1,
    data=lambda rng, shape, f: (rng.standard_normal(shape, dtype=np.float32), f),
    framework="jax",
)
def scale_by(x, factors):
    return [x * np.float32(factor) for factor in factors]

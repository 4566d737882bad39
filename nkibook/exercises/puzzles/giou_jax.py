"""Exercises of the page on GIOU in JAX."""

import numpy as np

from kernels.giou import reference
from nkibook.exercises import exercise


def _boxes(rng, *shapes):
    return tuple(reference.random_boxes(rng, shape) for shape in shapes)


def _padded(rng, samples, count):
    """Another number of padded targets in each sample, anywhere; a real one starts at (0, 0)."""
    p, t = _boxes(rng, (samples, count), (samples, count))
    for sample in range(samples):
        places = rng.permutation(count)
        t[sample, places[0], :2] = 0
        t[sample, places[count - 1 - 2 * sample :]] = 0
    return p, t


def _under_jit(answer, *args):
    import jax

    try:
        return jax.jit(answer)(*args)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:  # it wants a value
        first = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"under jax.jit no value is known, so no shape can depend on a value. "
            f"JAX says: {first}."
        ) from error


@exercise((3, 8), (2, 5), lines=2, data=_padded, framework="jax", run=_under_jit)
def masked_loss(p, t):
    # A target of zeros is padding; the mean is over the other targets.
    real = t.any(axis=-1)
    return (1 - reference.giou(p, t))[real].mean(dtype=np.float32)


@exercise(((4,), (6,)), ((3,), (5,)), lines=2, data=_boxes, framework="jax")
def all_pairs(p, t):
    shape = len(p), len(t), 4
    p, t = np.broadcast_to(p[:, None], shape), np.broadcast_to(t, shape)
    return reference.giou(p, t)


@exercise(((6,), (6,)), ((5,), (5,)), lines=1, data=_boxes, framework="jax", rtol=1e-4)
def square_gradient(p, t):
    # The gradient of the sum of the squared scores with respect to p.
    return reference.giou_backward(2 * reference.giou(p, t), p, t)[0]

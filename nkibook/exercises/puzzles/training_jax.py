"""Exercises of the page on training graphs in JAX."""

from collections import Counter

import numpy as np

from kernels.rmsnorm import reference
from nkibook.exercises import exercise


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=4, framework="jax")
def silu_gradient(x, grad):
    # The gradient of x * sigmoid(x), and how many arrays like x are kept.
    s = 1 / (1 + np.exp(-x))
    return grad * (s + x * s * (1 - s)), 1


def _rows(rng, kind, rows, columns):
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    if kind == "normalised":
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True)), np.ones(columns, np.float32)
    return x, rng.standard_normal(columns, dtype=np.float32)


@exercise(
    ("normalised", 4, 8),
    ("random", 4, 8),
    ("random", 3, 5),
    lines=1,
    data=_rows,
    framework="jax",
    rtol=1e-3,
    atol=1e-3,
)
def norm_gradients(x, weight):
    # The gradients of the sum of RMSNorm with respect to x and the weight.
    _, invvar = reference.rms_norm(x, weight, 1e-5)
    return reference.rms_norm_backward(np.ones_like(x), x, weight, invvar)


@exercise(
    (),
    lines=1,
    reveal=False,
    hint="After the outer checkpoint has run a layer again, the inner checkpoint runs the layer "
    "once more.",
    data=lambda rng: (),
)
def calls_of_nested_checkpoints():
    import jax

    from kernels.rmsnorm.jax_op import rms_norm
    from nkibook.hlo import jax_hlo

    weight = np.ones(8, np.float32)
    layer = jax.checkpoint(lambda x: rms_norm(x, weight))
    both = jax.checkpoint(lambda x: layer(layer(x)))
    gradient = jax.jit(jax.grad(lambda x: (both(x) ** 2).sum()))
    module = jax_hlo(gradient, np.ones((4, 8), np.float32)).after
    # A forward call takes x and the weight. A backward call takes the
    # gradient and invvar, too.
    calls = module.custom_calls
    found = Counter(len(call.operand_shapes) == 4 for call in calls)
    return found[False], found[True]

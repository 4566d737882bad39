"""Exercises of the page on training graphs in PyTorch."""

from collections import Counter

import numpy as np

from kernels.rmsnorm import reference
from nkibook.exercises import exercise


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=4, framework="torch")
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
    framework="torch",
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
    import torch
    from torch.utils.checkpoint import checkpoint

    calls = Counter()

    class Norm(torch.autograd.Function):  # only its calls are counted
        @staticmethod
        def forward(ctx, x):
            calls["forward"] += 1
            ctx.save_for_backward(x)
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            calls["backward"] += 1
            _ = ctx.saved_tensors
            return 2 * grad

    def layer(x):
        return checkpoint(Norm.apply, x, use_reentrant=False)

    x = torch.ones(4, 8, requires_grad=True)
    y = checkpoint(lambda x: layer(layer(x)), x, use_reentrant=False)
    (y**2).sum().backward()
    return calls["forward"], calls["backward"]

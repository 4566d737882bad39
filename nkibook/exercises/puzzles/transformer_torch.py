"""Exercises of the page on a transformer in PyTorch."""

import numpy as np

from kernels.cross_entropy import reference as losses
from kernels.rope import reference
from nkibook.exercises import exercise


@exercise(
    (1,),
    (2,),
    (5,),
    lines=1,
    reveal=False,
    hint="In the forward pass a layer makes 9 calls, 4 of them products. The end of the model "
    "makes 3 calls, one of them a product.",
)
def calls_of_a_step(layers):
    forward, products = 9 * layers + 3, 4 * layers + 1
    return forward + (forward - products) + 2 * products


def _rotated(rng, *shape):
    x, grad = rng.standard_normal((2, *shape), dtype=np.float32)
    return x, grad, *reference.rotations(*shape[-2:])


@exercise((2, 5, 8), (3, 7, 6), lines=1, data=_rotated, framework="torch")
def rope_gradient(x, grad, cos, sin):
    left, right = np.split(grad, 2, axis=-1)
    rotated = left * cos + right * sin, right * cos - left * sin
    return np.concatenate(rotated, axis=-1)


def _padded(rng, rows, classes):
    logits = rng.standard_normal((rows, classes), dtype=np.float32)
    keep = (np.arange(rows) < rows // 2 + 1).astype(np.float32)
    return logits, rng.integers(0, classes, rows, np.int32), keep


@exercise((6, 10), (9, 35), lines=1, data=_padded, framework="torch", rtol=1e-3)
def padded_loss(logits, targets, keep):
    loss, _ = losses.cross_entropy(logits, targets)
    return loss[keep == 1].mean()


_TILES = (8, 12), (128, 300), (77, 5)  # of the first the picture shows every element


@exercise(*((shape, shape) for shape in _TILES), lines=3, at_most=1.05)
def reglu(gate, up):
    return np.maximum(gate, 0) * up

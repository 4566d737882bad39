"""Exercises of the page on kernels in a Llama of Hugging Face."""

import numpy as np

from kernels.cross_entropy import reference as losses
from nkibook.exercises import exercise


def _text(rng, batch, length, classes, ignored):
    logits = rng.standard_normal((batch, length, classes), dtype=np.float32)
    labels = rng.integers(0, classes, (batch, length), np.int32)
    labels[:, :ignored] = -100
    return logits, labels


@exercise(
    (1, 4, 10, 0), (2, 7, 35, 0), (3, 9, 35, 4), lines=1, data=_text, framework="torch", rtol=1e-3
)
def causal_loss(logits, labels):
    # The mean over the tokens that have a successor that counts.
    logits, labels = logits[:, :-1], labels[:, 1:]
    counts = labels != -100
    loss, _ = losses.cross_entropy(logits[counts], labels[counts])
    return loss.mean()


@exercise(
    (70, 70, 64, None),
    (1, 300, 64, None),
    (30, 70, 64, None),
    (70, 70, 256, None),
    (70, 70, 64, 4096),
    (4097, 4097, 64, 4096),
    (1, 4096, 64, 4096),
    lines=2,
    reveal=False,
)
def kernel_takes(queries, keys, head, window):
    # Whether the kernel of attention may compute a call.
    hides = window is not None and keys > window
    return head <= 128 and queries in (1, keys) and not hides


@exercise(
    (1, 4, 3),
    (2, 6, 5),
    (4, 8, 7),
    lines=1,
    data=lambda rng, heads, head, columns: (
        rng.standard_normal((heads * head, columns), dtype=np.float32),
        heads,
    ),
    framework="torch",
)
def rows_for_halves(weight, heads):
    # Of a head the even rows come first, and then the odd ones.
    rows = weight.reshape(heads, -1, weight.shape[1])
    ordered = np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1)
    return ordered.reshape(weight.shape)

"""Exercises of the page from a slow operation to a kernel. Times are modelled or from rates."""

from nkibook.exercises import exercise


@exercise(
    (1024, 50_257),
    (300, 999),
    lines=1,
    reveal=False,
    unit="bytes",
    hint="The forward pass reads x and y; the backward pass reads x and y again and writes both "
    "gradients.",
)
def least_bytes(rows, columns):
    return 6 * rows * columns * 2


@exercise(
    (670.0, 272.0),
    (100.0, 370.0),
    lines=1,
    reveal=False,
    unit="MB",
    hint="The saved transfers must take as long as one dispatch.",
)
def megabytes_to_pay(dispatch_us, gb_per_s):
    return dispatch_us * gb_per_s / 1000


@exercise(
    ((128, 96), (128, 96)),
    ((100, 33), (100, 33)),
    lines=4,
    framework="jax",
    rtol=1e-4,
    atol=1e-4,
    cost=((128, 4096), (128, 4096)),
    at_most=1.1,
)
def squared_error(x, y):
    return ((x - y) ** 2).sum(axis=1, keepdims=True)

"""Exercises of the page on tensor addition in JAX."""

from nkibook.exercises import exercise


@exercise(((4, 6), (4, 6)), ((3, 5), (3, 5)), lines=1, framework="jax")
def gradients(a, b):
    # The gradients of the sum of (a + 2 b)^2 with respect to a and to b.
    c = a + 2 * b
    return 2 * c, 4 * c


@exercise(((3, 4, 6), (4, 6)), ((1, 2, 5), (2, 5)), lines=1, framework="jax")
def add_to_each(batch, b):
    return batch + b


@exercise(
    ((8, 6), (8, 6)),
    ((12, 5), (12, 5)),
    lines=1,
    grid=lambda a, b: a.shape[0] // 4,
    breaks=("program_id(0) * 2", "turn * 2"),
)
def add_rows(a, b):
    return a + b

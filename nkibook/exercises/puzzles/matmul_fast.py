"""Exercises of the page on fast matrix products."""

from nkibook.exercises import exercise


@exercise(
    ((256, 256), (256, 300)),
    ((200, 150), (200, 50)),
    lines=8,
    rtol=1e-4,
    atol=1e-4,
    cost=((2048, 512), (2048, 512)),
    at_most=1.05,
)
def load_once(a_t, b):
    return a_t.T @ b


@exercise(
    ((100, 60), (100, 1024)),
    ((128, 128), (128, 512)),
    lines=1,
    rtol=1e-4,
    atol=1e-4,
    cost=((128, 128), (128, 16384)),
    at_most=1.05,
)
def wide_loads(a_t, b):
    return a_t.T @ b

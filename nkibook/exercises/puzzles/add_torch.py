"""Exercises of the page on tensor addition in PyTorch."""

from nkibook.exercises import exercise


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=1)
def scale_add(a, b):
    return a + 2 * b


@exercise(((4, 8), (1, 8)), ((5, 3), (1, 3)), lines=2)
def add_row(a, row):
    return a + row


def _tiles_of_4_by_8(a, b):
    rows, columns = a.shape
    return -(-rows // 4), -(-columns // 8)


@exercise(
    ((8, 16), (8, 16)), ((8, 20), (8, 20)), ((10, 20), (10, 20)), lines=1, grid=_tiles_of_4_by_8
)
def add_any_shape(a, b):
    return a + b


def _tiles_of_128_rows(a, b):
    return -(-a.shape[0] // 128)


@exercise(
    ((4, 8), (4, 8)),
    ((256, 6), (256, 6)),
    lines=3,
    grid=_tiles_of_128_rows,
    cost=((2048, 2048), (2048, 2048)),
    at_most=1.05,
)
def product_of_sum(a, b):
    return a * b * (a + b)

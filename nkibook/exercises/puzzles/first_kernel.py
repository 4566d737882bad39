"""Exercises of the page on a first kernel."""

from nkibook.exercises import exercise


@exercise(((4, 8), (4, 8)), ((5, 3), (5, 3)), lines=1)
def difference(a, b):
    return a - b


@exercise(
    ((256, 40),),
    ((300, 17),),
    ((5, 3),),
    lines=5,
    breaks=("nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)", "nl.load(x)"),
)
def halved(x):
    return x / 2

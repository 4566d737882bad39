"""Exercises of the front page."""

from nkibook.exercises import exercise


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=1)
def subtract(a, b):
    return a - b


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=1)
def mean_of_two(a, b):
    return (a + b) / 2

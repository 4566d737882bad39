"""Exercises of the page on the two dialects."""

from nkibook.exercises import exercise


@exercise(((256, 40),), ((300, 17),), ((5, 3),), lines=2, breaks="range(a.shape[0] // 128)")
def double(a):
    return a + a


@exercise(((256, 8), (256, 6)), ((384, 128), (384, 512)), lines=1, rtol=1e-4, atol=1e-4)
def product(a_t, b):
    return a_t.T @ b

"""Exercises of the page on average pooling in PyTorch."""

from nkibook.exercises import exercise


@exercise(((2, 6, 6), 2), ((3, 6, 9), 3), lines=1)
def max_pool(x, k):
    c, h, w = x.shape
    return x.reshape(c, h // k, k, w // k, k).max(axis=(2, 4))


@exercise(((2, 5, 8),), ((1, 8, 11),), lines=1)
def stride_three(x):
    # The mean of windows of 2 x 2 that start every 3 rows and columns.
    rows = x[:, 0::3] + x[:, 1::3]
    return (rows[:, :, 0::3] + rows[:, :, 1::3]) / 4


@exercise(((2, 6, 6),), ((1, 5, 7),), lines=2)
def dilated(x):
    # The mean of the four corners of each 3 x 3 block, at every position.
    rows = x[:, :-2] + x[:, 2:]
    return (rows[:, :, :-2] + rows[:, :, 2:]) / 4


@exercise(((2, 6, 6), 2, 2), ((2, 6, 6), 3, 2), lines=1)
def rectangles(x, kh, kw):
    c, h, w = x.shape
    return x.reshape(c, h // kh, kh, w // kw, kw).mean(axis=(2, 4))

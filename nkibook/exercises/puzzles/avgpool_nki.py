"""Exercises of the page on average pooling in `import nki`."""

from nkibook.exercises import exercise


@exercise(((2, 6, 6), 2), ((3, 6, 9), 3), lines=1)
def max_pool(x, k):
    c, h, w = x.shape
    return x.reshape(c, h // k, k, w // k, k).max(axis=(2, 4))


@exercise(((2, 5, 7),), ((3, 7, 5),), lines=1, rtol=1e-4, atol=1e-5)
def overlapping(x):
    # The mean of windows of 3 x 3 that start every 2 rows and columns.
    rows, cols = (x.shape[1] - 1) // 2, (x.shape[2] - 1) // 2
    windows = [
        x[:, v : v + 2 * rows - 1 : 2, u : u + 2 * cols - 1 : 2] for v in range(3) for u in range(3)
    ]
    return sum(windows) / 9

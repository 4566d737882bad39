"""Answers to the exercises of the page from a slow operation to a kernel."""

# fmt: off
# The lines are those of the page, which shows 77 columns.


def least_bytes(rows, columns):
    return 6 * rows * columns * 2


def megabytes_to_pay(dispatch_us, gb_per_s):
    return dispatch_us * gb_per_s / 1000

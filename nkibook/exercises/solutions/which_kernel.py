"""Answers to the exercises on which kernel to write."""


def passes_saved():
    fused, kernel = 4, 2
    return fused - kernel


def rows_to_pay(passes, columns, gb_per_s, dispatch_us):
    us_a_row = passes * columns * 2 / (gb_per_s * 1000)
    return int(dispatch_us / us_a_row) + 1

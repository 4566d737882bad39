"""Exercises of the page on which kernel to write."""

import math

from nkibook.exercises import exercise


@exercise(
    (),
    lines=1,
    reveal=False,
    hint="Each reduction needs what the one before it computed, so each reads the rows again.",
)
def passes_saved():
    # The passes of fused operations less those of one kernel.
    return 2


@exercise(
    (2, 4096, 272, 670),
    (1, 50257, 370, 670),
    (3, 128, 272, 15),
    lines=3,
    reveal=False,
    hint="One GB/s is a thousand bytes a microsecond, and a bfloat16 number has two bytes.",
)
def rows_to_pay(passes, columns, gb_per_s, dispatch_us):
    # The smallest number of rows whose passes take longer than the dispatch.
    us_a_row = passes * columns * 2 / (gb_per_s * 1e3)
    return math.floor(dispatch_us / us_a_row) + 1

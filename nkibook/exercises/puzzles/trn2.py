"""Exercises of the page on trn2."""

from nkibook.exercises import exercise


@exercise(
    (560.0, 370.0),
    (81.0, 272.0),
    lines=1,
    reveal=False,
    unit="bytes",
    hint="Moving the bytes should take as long as starting the transfer.",
)
def large_enough(start_ns, gb_per_s):
    # Bytes; a GB/s is a byte a nanosecond.
    return start_ns * gb_per_s


@exercise(
    (600, 560.0, 2e6, 370.0),
    (10, 560.0, 2e7, 370.0),
    lines=1,
    reveal=False,
    unit="µs",
    hint="Compare the time of all starts with the time of all bytes: the longer time counts.",
)
def least_us(transfers, start_ns, moved, gb_per_s):
    # Starting and moving overlap.
    return max(transfers * start_ns, moved / gb_per_s) / 1e3


@exercise(
    (512, 100),
    (64, 100),
    (8192, 100),
    lines=1,
    reveal=False,
    unit="times as fast",
    hint="The fixed cycles remain; only the cycles for the elements become four times fewer.",
)
def speedup(elements, fixed):
    return (fixed + elements) / (fixed + elements / 4)

"""Answers to the exercises on trn2."""


def large_enough(start_ns, gb_per_s):
    return start_ns * gb_per_s


def least_us(transfers, start_ns, moved, gb_per_s):
    starting = transfers * start_ns / 1e3
    moving = moved / gb_per_s / 1e3
    return max(starting, moving)


def speedup(elements, fixed):
    return (fixed + elements) / (fixed + elements / 4)

"""Exercises of the page on tuning. Times are modelled by nkisim."""

from nkibook.exercises import exercise


@exercise((128, 512), (512, 1024), (512, 2048), (1024, 1024), (256, 2048), lines=1, reveal=False)
def fits(rows, columns):
    # Whether the float32 sums of a block fit into the 16 KiB of a PSUM
    # partition, when each partition holds every 128th row: "fits" or
    # "refused".
    return "fits" if rows // 128 * columns * 4 <= 16 * 1024 else "refused"


@exercise(((128, 8192),), ((64, 16384),), lines=1, cost=((128, 65536),), at_most=1.05)
def doubled(x):
    # The number of columns is a multiple of 8192.
    return 2 * x

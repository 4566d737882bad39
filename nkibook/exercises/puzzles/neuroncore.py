"""Exercises of the page on the NeuronCore."""

import math

import numpy as np

from nkibook.chip import chip
from nkibook.exercises import exercise


@exercise(
    (2048, 2),
    (1000, 4),
    lines=1,
    reveal=False,
    unit="tiles",
    hint="SBUF has 128 partitions, and each row of a tile lies on one partition.",
)
def tiles_in_sbuf(columns, itemsize):
    # How many tiles of 128 rows fit in SBUF. No tile crosses partitions.
    partition = chip().sbuf // 128
    return partition // (columns * itemsize)


@exercise(
    (4, 1),
    (2, 2),
    lines=2,
    reveal=False,
    unit="instructions",
    hint="DMA moves four tiles. Each element takes cycles_each cycles on one of the 128 lanes.",
)
def operations_for_free(itemsize, cycles_each):
    # How many instructions on one tile the Vector Engine runs in the time
    # that DMA takes to load three tiles and to store one tile, at published
    # rates.
    dma = 4 * itemsize / chip().load_rate
    vector = cycles_each / 128 / (chip().ghz["Vector"] * 1e9)
    return math.floor(dma / vector)


@exercise(((4, 6),), ((5, 3),), lines=1)
def transpose(x):
    return x.T


@exercise(((300, 4),), ((129, 3),), lines=3)
def double_tall(x):
    return np.float32(2) * x

"""Exercises of the page on the NeuronCore."""

import math

import numpy as np

from nkibook.exercises import exercise


@exercise(
    (2048, 2),
    (1000, 4),
    lines=1,
    reveal=False,
    unit="tiles",
    hint="SBUF has 24 MiB on 128 partitions, and each row of a tile lies on one of them.",
)
def tiles_in_sbuf(columns, itemsize):
    # How many tiles of 128 rows fit in SBUF. A tile does not cross partitions.
    partition = 24 * 2**20 // 128
    return partition // (columns * itemsize)


@exercise(
    (4, 1),
    (2, 2),
    lines=2,
    reveal=False,
    unit="instructions",
    hint="Three tiles move. An element takes cycles_each cycles of one of 128 lanes.",
)
def operations_for_free(itemsize, cycles_each):
    # How many instructions on a tile the Vector Engine does in the time that DMA takes to bring
    # two tiles and to take one away. Published rates: 272 GB/s, 128 lanes, 1.12 GHz.
    dma = 3 * itemsize / 272e9
    vector = cycles_each / 128 / 1.12e9
    return math.floor(dma / vector)


@exercise(((4, 6),), ((5, 3),), lines=1)
def transpose(x):
    return x.T


@exercise(((300, 4),), ((129, 3),), lines=3)
def double_tall(x):
    return np.float32(2) * x

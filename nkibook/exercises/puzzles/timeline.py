"""Exercises of the page on reading a timeline. Times are modelled by nkisim."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

from nkibook.chip import chip
from nkibook.exercises import exercise


@exercise(
    (1,),
    (2,),
    (3,),
    (4,),
    (6,),
    lines=1,
    reveal=False,
    hint=f"A pass takes 2048 times {chip().cycles_a_pair} cycles of {chip().ghz['Vector']} GHz; "
    f"DMA moves 2 MiB a tile, at {chip().load_rate / 1e9:.0f} GB/s.",
)
def busiest(count):
    # Of a kernel that loads float32 tiles of 128 x 2048, multiplies each `count` times, and
    # stores it: "DMA queues" or "Vector".
    import nkisim

    @nki.jit
    def multiplies(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            rows = nl.ds(i * 128, 128)
            tile = nl.load(x[rows, :])
            for _ in nl.static_range(count):
                tile = nl.multiply(tile, tile)
            nl.store(y[rows, :], value=tile)
        return y

    x = nkisim.TensorSpec((2048, 2048), np.dtype(np.float32))
    return nkisim.profile(multiplies, x).bound.name


@exercise(((256, 64),), ((128, 96),), lines=3, cost=((512, 2048),), at_most=1.1)
def exponentials(x):
    # Rows come in multiples of 128.
    return np.exp(x)


@exercise(((128, 32),), ((256, 7),), lines=2, cost=((2048, 2048),), at_most=1.05)
def six_steps(x):
    for i in range(6):
        x = x * np.float32(0.5) + np.float32(i)
    return x

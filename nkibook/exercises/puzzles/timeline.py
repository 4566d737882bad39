"""Exercises of the page on measuring a kernel.

Times are modelled by nkisim, or those of a clock and a device that are stand-ins and take no time.
"""

from __future__ import annotations

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
    hint=f"One multiplication of a tile takes 2048 x {chip().cycles_a_pair} cycles at "
    f"{chip().ghz['Vector']} GHz. For each tile, DMA moves 2 MiB at "
    f"{chip().load_rate / 1e9:.0f} GB/s.",
)
def busiest(count):
    # The busiest part of the NeuronCore, "DMA queues" or "Vector", when a
    # kernel loads float32 tiles of 128 x 2048, multiplies each tile `count`
    # times and stores it.
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
    # The number of rows is a multiple of 128.
    return np.exp(x)


@exercise(((128, 32),), ((256, 7),), lines=2, cost=((2048, 2048),), at_most=1.05)
def six_steps(x):
    for i in range(6):
        x = x * np.float32(0.5) + np.float32(i)
    return x


class Clock:
    """A clock that stands still until somebody works; reads in microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __repr__(self) -> str:
        return "a clock"


class LazyDevice:
    """A device: a call returns a promise after 5 µs, the first one after 1000.

    One call's work begins when the one before it has ended, and takes the next of `works`
    microseconds, over and over.
    """

    def __init__(self, clock: Clock, works: list[int]) -> None:
        self._clock, self._works, self._calls, self._free = clock, works, 0, 0

    def __call__(self) -> Promise:
        self._clock.now += 5 if self._calls else 1000
        work = self._works[self._calls % len(self._works)]
        self._calls += 1
        self._free = max(self._free, self._clock.now) + work
        return Promise(self._clock, self._free)

    def __repr__(self) -> str:
        return "a device"


class Promise:
    def __init__(self, clock: Clock, ready: int) -> None:
        self._clock, self._ready = clock, ready

    def block_until_ready(self) -> None:
        self._clock.now = max(self._clock.now, self._ready)


def _clock_and_device(rng, calls):
    clock = Clock()
    # Of so many calls the mean is the same, however many went before to warm up.
    return clock, LazyDevice(clock, rng.integers(90, 151, 4).tolist()), calls


@exercise((4,), (12,), lines=3, data=_clock_and_device)
def time_of_a_call(clock, call, times):
    # The mean time from a call to its result, over `times` calls after
    # compilation.
    call().block_until_ready()
    start = clock.now
    for _ in range(times):
        call().block_until_ready()
    return (clock.now - start) / times


@exercise(
    (100.0, 200.0, 670.0),
    (30.0, 300.0, 670.0),
    lines=1,
    reveal=False,
    unit="times as fast",
    hint="The time on the clock includes the dispatch of each kernel.",
)
def speedup_seen(device_us, slower_device_us, dispatch_us):
    # The speedup that a clock on the host shows, when the host waits for
    # each call.
    return (slower_device_us + dispatch_us) / (device_us + dispatch_us)

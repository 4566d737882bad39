"""Exercises of the page on timing. Clocks and devices are simple stand-ins that take no time."""

from __future__ import annotations

from nkibook.exercises import exercise


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
    # The mean over `times` calls, from the call to its result, when everything is compiled.
    call().block_until_ready()
    start = clock.now
    for _ in range(times):
        call().block_until_ready()
    return (clock.now - start) / times


@exercise(
    (25600, 4), (10**6, 2), lines=1, reveal=False, unit="µs", hint="Two vectors come and one goes."
)
def least_us(elements, itemsize):
    # An add of two vectors, over 16 DMA engines that move 272 GB/s together: microseconds.
    return 3 * elements * itemsize / 272e9 * 1e6


@exercise(
    (100.0, 200.0, 670.0),
    (30.0, 300.0, 670.0),
    lines=1,
    reveal=False,
    unit="times as fast",
    hint="The clock sees the dispatch with either kernel.",
)
def speedup_seen(device_us, slower_device_us, dispatch_us):
    # How much faster a kernel looks to a clock on the host, when each call is waited for.
    return (slower_device_us + dispatch_us) / (device_us + dispatch_us)

"""Modelled bounds of a custom operator, against sums done by hand."""

from __future__ import annotations

import dataclasses

import pytest

from nkisim.customop import ProcessorRun, Run
from nkisim.customop.cost import estimate
from nkisim.machine.timing import V2


def run(*elements: int) -> Run:
    """Processors that read 32 bytes and write 4 for each of their elements, in three copies."""
    each = [ProcessorRun(i, 3, 32 * n, 4 * n, n, 0, 0) for i, n in enumerate(elements)]
    return Run("my_ops::giou", sum(elements), 0, 0, tuple(each))


@pytest.fixture
def timing():
    known = V2
    dma = dataclasses.replace(
        known.dma,
        engines=16,
        load_rate=16.0,
        store_rate=8.0,
        trigger_ns=100,
        start_ns=200,
        load_latency_ns=500,
        semaphore_ns=50,
        wake_ns=150,
    )
    return dataclasses.replace(known, dma=dma, gpsimd=dataclasses.replace(known.gpsimd, ghz=2.0))


def test_bounds_by_hand(timing):
    got = estimate(run(1600, 800), operations=20, timing=timing)
    # The busiest processor: 1600 x 20 operations at 2 GHz; 16 at a time in vectors.
    assert got.scalar_us == pytest.approx(16)
    assert got.vector_us == pytest.approx(1)
    # 2400 elements of 32 bytes at 16 B/ns and of 4 bytes at 8 B/ns, over 16 engines.
    assert got.bytes_us == pytest.approx((2400 * 2 + 2400 * 0.5) / 16 / 1e3)
    # 3 copies of 1000 ns, and the bytes of one processor at the rate of one engine.
    assert got.copies_us == pytest.approx((3000 + 1600 * 2 + 1600 * 0.5) / 1e3)
    assert got.least_us == got.vector_us
    assert got.in_turn_us == got.copies_us + got.vector_us


def test_bytes_bound_when_there_is_little_to_compute(timing):
    got = estimate(run(1600, 1600), operations=1, timing=timing)
    assert got.least_us == got.bytes_us > got.vector_us

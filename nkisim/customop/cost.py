"""Modelled latency of a custom operator, between two bounds.

How the device's compiler schedules a kernel function is not public, and neither is what a copy to
TCM costs. So there is no one number here, but the least time that arithmetic and bytes can take,
and the time of code that does one thing after the other. No device was compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.customop.processors import Run
from nkisim.machine.timing import Timing

LANES = 16
"""float32 numbers in a vector of 512 bits (AWS, "Trainium/Inferentia2 Architecture Guide")."""


@dataclass(frozen=True)
class Estimate:
    """Modelled times of the busiest processor, in µs. Launching the program comes on top.

    Attributes:
        vector_us: the operations, LANES at a time, one vector a cycle.
        scalar_us: the operations, one a cycle.
        bytes_us: the bytes of all processors over all DMA engines, none of them waiting.
        copies_us: the copies, each waiting for the one before it, on a DMA engine a processor.
    """

    vector_us: float
    scalar_us: float
    bytes_us: float
    copies_us: float

    @property
    def least_us(self) -> float:
        """When everything overlaps: the longer of arithmetic in vectors, and bytes."""
        return max(self.vector_us, self.bytes_us)

    @property
    def in_turn_us(self) -> float:
        """When nothing overlaps: copies one by one, then arithmetic in vectors."""
        return self.copies_us + self.vector_us


def estimate(run: Run, operations: float, timing: Timing) -> Estimate:
    """Bounds on the time of a call.

    Args:
        run: the call, from `nkisim.customop.record`.
        operations: float32 operations for each element of the output.
        timing: the generation's figures, `machine.timing`.

    Returns:
        The estimate, modelled. Clock and DMA figures and their sources are in
        `nkisim.machine.timing`.
    """
    dma = timing.dma
    ns = max(p.elements_written for p in run.processors) * operations / timing.gpsimd.ghz
    read = sum(p.bytes_read for p in run.processors)
    written = sum(p.bytes_written for p in run.processors)
    spread = (read / dma.load_rate + written / dma.store_rate) / dma.engines
    # What a copy waits for beside its bytes. The latency is that of a load: a store's is shorter.
    fixed = dma.trigger_ns + dma.start_ns + dma.load_latency_ns + dma.semaphore_ns + dma.wake_ns
    copies = max(
        p.transfers * fixed + p.bytes_read / dma.load_rate + p.bytes_written / dma.store_rate
        for p in run.processors
    )
    return Estimate(ns / LANES / 1e3, ns / 1e3, spread / 1e3, copies / 1e3)

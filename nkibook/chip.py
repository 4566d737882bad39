"""The chip that a reader has: published figures for estimates on the pages.

It is the one that kernels are modelled for. Where nothing names it, that is the simulator's for the
dialect of NKI: NeuronCore-v2 (inf2 and trn1) for `neuronxcc.nki`, and v4 (trn3) for `import nki`.
The pages in `import nki` set NEURON_PLATFORM_TARGET_OVERRIDE=trn2. The figures are those of the
cost model, `nkisim.machine`, which names the source of each.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import kernels
from kernels.logical_core import instance
from nkisim.machine import Machine
from nkisim.machine.target import DEFAULTS, OVERRIDE, PLATFORMS, target


@dataclass(frozen=True)
class Chip:
    """A Neuron device of one generation. Rates are those of one NeuronCore.

    Attributes:
        machine: what the cost model knows of the generation.
    """

    machine: Machine

    @property
    def name(self) -> str:
        """Of the core's generation: "NeuronCore-v2"."""
        return self.machine.name

    @property
    def instances(self) -> str:
        """The EC2 instances that have it: "inf2 and trn1"."""
        return " and ".join(sorted(self.machine.instances.lower().split(", ")))

    @property
    def cores(self) -> int:
        """NeuronCores of a device."""
        return self.machine.chip_cores

    @property
    def sbuf(self) -> int:
        """Bytes of a core's SBUF."""
        return self.machine.sbuf_bytes * self.machine.partitions

    @property
    def psum(self) -> int:
        """Bytes of a core's PSUM."""
        return self.machine.psum_bytes * self.machine.partitions

    @property
    def hbm(self) -> int:
        """Bytes of a device's HBM, for all of its cores."""
        return self.machine.hbm_bytes

    @property
    def ghz(self) -> dict[str, float]:
        """Clock of each engine: "Tensor", "Vector", "Scalar" and "GpSimd"."""
        timing = self.machine.timing
        return {
            "Tensor": timing.tensor.ghz,
            "Vector": timing.vector.ghz,
            "Scalar": timing.scalar.ghz,
            "GpSimd": timing.gpsimd.ghz,
        }

    @property
    def cycles_a_pair(self) -> int:
        """Cycles of the Vector Engine for each pair of float32 operands in SBUF, on each lane."""
        return self.machine.pair_cycles

    @property
    def tflops(self) -> float:
        """Peak of the Tensor Engine in bfloat16, in 10^12 operations a second."""
        return self.machine.timing.tensor.tflops

    @property
    def load_rate(self) -> float:
        """Bytes a second that all DMA engines of a core load from HBM."""
        dma = self.machine.timing.dma
        return dma.engines * dma.load_rate * 1e9

    @property
    def store_rate(self) -> float:
        """Bytes a second that all DMA engines of a core store to HBM."""
        dma = self.machine.timing.dma
        return dma.engines * dma.store_rate * 1e9

    @property
    def launch(self) -> float:
        """Seconds that a launch takes beside the kernel's instructions."""
        return (self.machine.timing.before_ns + self.machine.timing.after_ns) / 1e9


def chip() -> Chip:
    """The chip that kernels are modelled for, or run on.

    Returns:
        The chip that NEURON_PLATFORM_TARGET_OVERRIDE or NEURON_CC_FLAGS names. Without them, where
        the SDK runs the kernels, that of the instance this is; else what the simulator models for
        the dialect of `kernels`. A kernel's own platform_target counts for that kernel only.

    Raises:
        RuntimeError: nothing settles it: a program has imported `nki`, `kernels` took
            `neuronxcc.nki`, and none of the variables is set.
        ParameterError: the environment names no chip.
    """
    named = target(default=DEFAULTS[kernels.dialect])
    if named.source:
        return Chip(named.machine)
    if kernels.backend != "nkisim" and instance() in PLATFORMS:
        return Chip(PLATFORMS[instance()])
    if _imported() == ["nki"] != [kernels.dialect] and not os.environ.get("NKI_DIALECT"):
        raise RuntimeError(
            "Which chip is meant? This program imports nki, whose kernels are modelled for trn3 "
            f"where {OVERRIDE} is not set; the kernels of this book are those of neuronxcc.nki "
            f"here, for inf2 and trn1. Set {OVERRIDE} to trn2, trn3 or inf2."
        )
    return Chip(named.machine)


def _imported() -> list[str]:
    """The dialects whose language a program has imported."""
    languages = {"neuronxcc": "neuronxcc.nki.language", "nki": "nki.language"}
    return [dialect for dialect, language in languages.items() if language in sys.modules]

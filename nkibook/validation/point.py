"""One published latency, and what the cost model says of the same kernel."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from nkisim.runtime.kernel import Kernel


_REPETITIONS = (10, 20)  # between which a slope is taken


class Modelled(NamedTuple):
    """What the cost model gives for a point: microseconds, and how many instructions it took."""

    us: float
    instructions: int


@dataclass(frozen=True)
class Point:
    """One published number.

    Attributes:
        name: kernel and size.
        published_us: microseconds.
        source: key in `SOURCES` of the list that it is in.
        how: what was measured: "latency" (with launch overhead), "body" (without), or "slope"
            (microseconds for each repetition).
        kernel: `module.function` of this package, or of `kernels` with its full name.
        args: its arguments; of a slope all but the last one, the number of repetitions.
        trust: "high" or "medium".
        family: points of one plot colour.
        core: "v2", "v3", or "v3 static": NeuronCore-v3, compiled with --disable-dge.
    """

    name: str
    published_us: float
    source: str
    how: str
    kernel: str
    args: tuple
    trust: str
    family: str
    core: str = "v2"

    def modelled(self) -> Modelled:
        """What the cost model gives for it now."""
        if self.how == "slope":
            few, many = (self._profile(*self.args, n) for n in _REPETITIONS)
            step = (many.us - few.us) / (_REPETITIONS[1] - _REPETITIONS[0])
            return Modelled(step, few.instructions + many.instructions)
        return self._profile(*self.args)

    @property
    def function(self) -> Kernel:
        """The kernel itself."""
        module, _, function = self.kernel.rpartition(".")
        if not module.startswith("kernels."):
            module = f"nkibook.validation.{module}"
        return getattr(import_module(module), function)

    @property
    def machine(self) -> Machine:
        """The NeuronCore generation that the point was measured on."""
        from nkisim import machine

        cores = {"v2": machine.GEN2, "v3": machine.GEN3, "v3 static": machine.GEN3_STATIC}
        return cores[self.core]

    def _profile(self, *args: object) -> Modelled:
        import nkisim

        # Some of them spill, which is the point, and one only loads.
        with nkisim.checks(sbuf="off", psum="off", output="off"):
            found = nkisim.profile(self.function.on(self.machine), *args)
        latency = found.latency_us if self.how == "latency" else found.body_us
        return Modelled(latency, found.instructions)


def spec(*shape: int, dtype: Any = np.float32) -> object:
    """A tensor of this shape, to be profiled with."""
    import nkisim

    return nkisim.TensorSpec(shape, np.dtype(dtype))


def bf16(*shape: int) -> object:
    """A bfloat16 tensor of this shape, to be profiled with."""
    from ml_dtypes import bfloat16

    return spec(*shape, dtype=bfloat16)

"""The NeuronCore generation that a kernel of this dialect is traced for."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.machine import target as targets
from nkisim.trace.tracer import current_if_any


def target() -> targets.Target:
    """The target that the environment names; without one NeuronCore-v4, as AWS's simulator takes
    where it finds no device.

    Raises:
        ParameterError: the environment names no generation.
    """
    return targets.target(default=targets.DEFAULTS["nki"])


def current_machine() -> Machine:
    """The generation of the kernel that is traced; outside of one, of the next."""
    tracer = current_if_any()
    return tracer.trace.machine if tracer is not None else target().machine

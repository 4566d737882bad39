"""Which NeuronCore generation a kernel of this dialect is traced for: the environment says it."""

from __future__ import annotations

import os

from nkisim.errors import ParameterError
from nkisim.machine import GEN2, GEN3, GEN4, Machine
from nkisim.trace.tracer import current_if_any

VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
TARGETS = {
    "trn1": GEN2,
    "inf2": GEN2,
    "gen2": GEN2,
    "trn2": GEN3,
    "gen3": GEN3,
    "trn3": GEN4,
    "gen4": GEN4,
}


def target() -> Machine:
    """The generation that NEURON_PLATFORM_TARGET_OVERRIDE names; without it NeuronCore-v4, as
    AWS's simulator takes where it finds no device.

    Raises:
        ParameterError: the variable names no generation.
    """
    name = os.environ.get(VARIABLE, "")
    if not name:
        return GEN4
    if name.lower() not in TARGETS:
        raise ParameterError(
            f"{VARIABLE}={name}",
            rule="it is one of " + ", ".join(TARGETS),
            fix="set one of these, or unset it",
        )
    return TARGETS[name.lower()]


def current_machine() -> Machine:
    """The generation of the kernel that is traced; outside of one, of the next."""
    tracer = current_if_any()
    return tracer.trace.machine if tracer is not None else target()

"""Which Neuron instance this is, and how many physical cores a launch of ``import nki`` is for.

Needs no NKI and no framework.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import kernels


def instance() -> str:
    """The kind of Neuron instance this is: "inf2", "trn1", "trn2", ...; "" where it is none.

    From NEURON_PLATFORM_TARGET_OVERRIDE, as the Neuron compiler takes it, else from the name of the
    instance type that EC2 gives its machines ("inf2.xlarge").
    """
    kind = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    if not kind:
        with contextlib.suppress(OSError):
            kind = Path("/sys/devices/virtual/dmi/id/product_name").read_text().partition(".")[0]
    kind = kind.strip().lower()
    return kind if kind.startswith(("inf", "trn")) else ""


def cores(lnc: int | None = None) -> int:
    """How many physical cores of a logical core a kernel is launched on.

    Args:
        lnc: what the caller says; None for as many as the runtime joins, which a launch must be on.

    Returns:
        `lnc`. Without it NEURON_LOGICAL_NC_CONFIG, which the Neuron runtime takes from the
        environment; unset, 2 where the SDK runs the kernels on Trainium2 or later, as the runtime
        does, else 1.
    """
    if lnc is not None:
        return lnc
    said = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    if said:
        return int(said)
    is_one = kernels.backend == "nkisim" or instance() in ("inf2", "trn1", "trn1n", "")
    return 1 if is_one else 2

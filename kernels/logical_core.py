"""Which Neuron instance this is, and how many of its cores a launch is for.

Needs no NKI and no framework.
"""

from __future__ import annotations

import os
from pathlib import Path

import kernels


def instance_type() -> str:
    """The type of a Nitro-based EC2 instance, as "inf2.xlarge"; "" on other machines."""
    folder = Path("/sys/devices/virtual/dmi/id")
    try:
        if (folder / "sys_vendor").read_text().strip() != "Amazon EC2":
            return ""
        return (folder / "product_name").read_text().strip()
    except OSError:
        return ""


def instance() -> str:
    """The kind of Neuron instance this is: "inf2", "trn1", "trn2", ...; "" where it is none.

    From NEURON_PLATFORM_TARGET_OVERRIDE, as the Neuron compiler takes it, else from the name of the
    instance type that EC2 gives its machines ("inf2.xlarge").
    """
    kind = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    kind = (kind or instance_type()).partition(".")[0].strip().lower()
    return kind if kind.startswith(("inf", "trn")) else ""


def cores(lnc: int | None = None) -> int:
    """How many physical cores of a logical core a kernel is launched on.

    Args:
        lnc: what the caller says; None for as many as the runtime joins, which a launch must be on.

    Returns:
        `lnc`. Without it NEURON_LOGICAL_NC_CONFIG, which the Neuron runtime takes from the
        environment; unset, 2 where the SDK runs the kernels on Trainium2 or later, as the runtime
        does, else 1; so 1 in the simulator, for every target.
    """
    if lnc is not None:
        return lnc
    said = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    if said:
        return int(said)
    return 1 if kernels.backend == "nkisim" else _cores_on_one_hbm()


def cores_per_launch() -> int:
    """How many NeuronCores one launch of ``neuronxcc.nki`` may be spread over, with `nl.nc(n)`.

    Returns:
        2 on instances whose NeuronCores share their HBM (Trainium2 and later), 1 on inf2 and trn1;
        in the simulator 2, unless NEURON_PLATFORM_TARGET_OVERRIDE names one of these.
    """
    if kernels.backend == "nkisim" and not instance():
        return 2
    return _cores_on_one_hbm()


def _cores_on_one_hbm() -> int:
    return 1 if instance() in ("inf2", "trn1", "trn1n", "") else 2

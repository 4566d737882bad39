"""Which NeuronCore generation kernels are compiled for.

What counts, the strongest first, as AWS has it: the environment variable
NEURON_PLATFORM_TARGET_OVERRIDE, which overrides all else; the compiler's option --target in
NEURON_CC_FLAGS; and platform_target, which a kernel's decorator says. Without any of them kernels
of neuronxcc.nki are for NeuronCore-v2, of trn1 and inf2, and those of nki for NeuronCore-v4, as in
AWS's simulator.
"""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from nkisim.errors import ParameterError
from nkisim.machine import GEN2, GEN3, GEN4, Machine

OVERRIDE, FLAGS = "NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_CC_FLAGS"

# The names that AWS gives generations, in all of these places.
PLATFORMS = {
    "trn1": GEN2,
    "trn1n": GEN2,
    "inf2": GEN2,
    "gen2": GEN2,
    "trn2": GEN3,
    "trn2n": GEN3,
    "gen3": GEN3,
    "trn3": GEN4,
    "gen4": GEN4,
}


class Target(NamedTuple):
    """A generation, and what chose it.

    Attributes:
        machine: the generation.
        source: what chose it, e.g. "NEURON_CC_FLAGS=--target=trn2"; "" for the default.
    """

    machine: Machine
    source: str


def target(platform: str | None = None, default: Machine = GEN2) -> Target:
    """The generation to trace a kernel for.

    Args:
        platform: the kernel's platform_target, if it has one.
        default: what it is where nothing says more.

    Raises:
        ParameterError: a name that no generation has.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        return _named(override, f"{OVERRIDE}={override}")
    flag = _flagged(os.environ.get(FLAGS, ""))
    if flag:
        return _named(flag, f"{FLAGS}=--target={flag}")
    if platform is not None:
        return _named(platform, f"platform_target={platform!r}")
    return Target(default, "")


def _flagged(flags: str) -> str:
    """What the compiler's option --target says; the last one counts."""
    if "--target" not in flags:
        return ""
    try:
        words = shlex.split(flags)
    except ValueError:  # a quote without its partner
        words = flags.split()
    found = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == "--target":
            found = value or following
    return found


def _named(name: str, source: str) -> Target:
    machine = PLATFORMS.get(name.strip().lower()) if isinstance(name, str) else None
    if machine is None:
        raise ParameterError(
            source,
            rule="kernels are compiled for " + ", ".join(PLATFORMS),
            fix="name one of these, or none",
        )
    return Target(machine, source)

"""The NeuronCore generation that kernels are compiled for.

What counts, the strongest first, as AWS has it: the environment variable
NEURON_PLATFORM_TARGET_OVERRIDE, which overrides all else; the compiler's option --target in
NEURON_CC_FLAGS; and platform_target, which a kernel's decorator says. Without any of them kernels
of neuronxcc.nki are for NeuronCore-v2, of trn1 and inf2, and those of nki for NeuronCore-v4, as in
AWS's simulator.
"""

from __future__ import annotations

import difflib
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
    "trn3pre": GEN4,  # neuronx-cc's name for it before its release
    "gen4": GEN4,
}


DEFAULTS = {"neuronxcc": GEN2, "nki": GEN4}
"""What a kernel of each dialect is traced for where nothing names a generation."""


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
    name, source = _of_environment()
    if name:
        return _named(name, source)
    if platform is not None:
        return _named(platform, f"platform_target={platform!r}")
    return Target(default, "")


def platform(default: str = "trn1") -> str:
    """The platform that the environment names, such as "trn2".

    Raises:
        ParameterError: a name that no generation has.
    """
    name, source = _of_environment()
    if not name:
        return default
    _named(name, source)
    return name.strip().lower()


def _of_environment() -> tuple[str, str]:
    """The name of a platform, and what gives it; both empty where nothing does."""
    override = os.environ.get(OVERRIDE)
    if override:
        return override, f"{OVERRIDE}={override}"
    flag = _flagged(os.environ.get(FLAGS, ""))
    return flag, f"{FLAGS}=--target={flag}" if flag else ""


def _flagged(flags: str) -> str:
    """The value of the compiler's option --target; the last one counts."""
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
        given = str(name).strip().lower().partition(".")[0]
        near = difflib.get_close_matches(given, PLATFORMS, 1)
        old = given.startswith("inf1") or given == "gen1"
        raise ParameterError(
            source,
            rule="NKI is for NeuronCore-v2 and later; inf1 has NeuronCore-v1"
            if old
            else "kernels are compiled for " + ", ".join(PLATFORMS),
            fix=f"write {near[0]}, if that is meant"
            if near and not old
            else "name one of " + ", ".join(PLATFORMS) + ", or none",
        )
    return Target(machine, source)

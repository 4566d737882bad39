"""Traced programs, found by the ``backend_config`` of a custom call.

A custom call carries text. On hardware the text leads the Neuron compiler to the kernel; here it
leads whoever executes the call to the traced program, by the digest in it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json

from nkisim.numerics.program import Program

# Entries are never removed: an executable that XLA compiled may be called at any later time.
_programs: dict[str, Program] = {}


class ConfigError(ValueError):
    """Text that is no backend_config of nkisim."""


class UnknownProgramError(LookupError):
    """A backend_config of a program that this process has not traced."""


def add_program(program: Program) -> None:
    """Make a traced program findable by its digest.

    Raises:
        RuntimeError: another program has this digest, so that an executable would find the wrong
            one.
    """
    known = _programs.setdefault(program.digest, program)
    if known is not program:
        if not known.same_as(program):
            raise RuntimeError(
                f"two programs of kernel {program.trace.name} have the digest "
                f"{program.digest[:12]}: this is an error of nkisim, please report it"
            )
        _programs[program.digest] = program  # whose lines are those of the source as it is now


def find_program(config: str | bytes) -> Program:
    """The program that a backend_config names.

    Args:
        config: what :meth:`nkisim.runtime.frameworks.base.FrameworkKernel.dump_config` wrote.

    Raises:
        ConfigError: ``config`` is something else.
        UnknownProgramError: this process has not traced the program.
    """
    digest = _digest(config)
    try:
        return _programs[digest]
    except KeyError:
        raise UnknownProgramError(
            f"this process has not traced the program of this custom call (digest {digest[:12]}). "
            "The executable was made by another process. Call the NKI kernel once here with the "
            "same shapes, dtypes and grid, then run the executable."
        ) from None


@functools.lru_cache(maxsize=4096)
def _digest(config: str | bytes) -> str:
    """The ``digest`` field of a backend_config (base64 of a JSON object)."""
    try:
        return json.loads(base64.b64decode(config, validate=True))["digest"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the `config` of this custom call is not a backend_config of nkisim "
            f"({type(error).__name__}: {error}). Call the NKI kernel itself, which writes it."
        ) from error

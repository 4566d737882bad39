"""The modes of checks: an error, a warning, or off."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

Mode = Literal["error", "warn", "off"]
_MODES = ("error", "warn", "off")

CHECKS = {
    "bounds": "an access pattern stays inside its tensor",
    "tile": "tiles fit the partitions and bytes of their memory, partition axis first",
    "memory": "operands live in a memory the instruction reaches",
    "partition": "engines reach partitions from 0, 32, 64 or 96 on",
    "uninitialized": "nothing is read before it is written",
    "race": "SPMD instances do not write what another one writes or reads",
    "output": "every output is written",
    "input": "every element of an input is read, if any is",
    "store": "a store writes each element once",
    "scope": "a tile is used in the loop iteration that made it",
    "loop": "iterations of affine_range do not depend on one another",
    "shape": "a tile that a loop makes has the same shape in each iteration",
    "counter": "numbers that a loop counts in Python serve as addresses of tiles only",
    "sbuf": "the tiles alive at any time fit SBUF",
    "psum": "the tiles alive at any time fit PSUM",
    "accumulation": "a PSUM tile is read after its last matmul, and accumulated by matmuls only",
    "overlap": "an instruction does not write over data that it reads for other results",
    "placement": "tiles placed by hand fit, and do not overlap while both are alive",
    "range": "activation functions get inputs from their documented range",
    "keyword": "operations know the keywords that they are given",
    "compiler": "nothing is used that AWS's known issues say its compiler refuses",
    "values": "values that a kernel reads while it is traced do not end up in it",
    "tcm": "custom C++ operators free the TCM that they allocate",
}

OF_NEURONXCC = ("scope", "loop", "shape", "counter", "store", "keyword")
"""The checks of what `import nki` does not have: index tensors and masks, loops that are traced
once, keywords that nobody reads."""

# A value out of range is one wrong number, and padding that nobody uses may hold it. What a loop
# counts may serve a message or a name, for all that can be told. That a loop makes tiles of several
# shapes is told by their lines.
# A part of an input may be of no interest, and what a store repeats is only slow.
# The compiler mends the others at a price: it moves a tile to an allowed partition, or spills
# tiles to the next memory ("any on-chip memory": NKI programming model, Memory hierarchy).
# The SDK's operations take any keyword. What its compiler refuses today, a later one may take.
_WARNED = ("partition", "sbuf", "psum", "range", "keyword", "counter", "shape", "compiler")
# Who debugs reads values. Where Python takes one from there cannot be followed: as an error, the
# check refuses the reading itself; as a warning, it tells when data is embedded afterwards.
_WARNED += ("values",)
# What order an instruction reads and writes in is not documented.
_WARNED += ("input", "store", "overlap")


def _from_environment() -> dict[str, Mode]:
    text = os.environ.get("NKISIM_CHECKS", "")
    settings = (part.partition("=") for part in text.split(",") if part.strip())
    return _validated({name.strip(): mode.strip() for name, _, mode in settings})


def _validated(settings: dict[str, str]) -> dict[str, Mode]:
    for name, mode in settings.items():
        if name not in CHECKS or mode not in _MODES:
            raise ValueError(
                f"unknown check setting {name}={mode!r}: "
                f"checks are {', '.join(CHECKS)}; modes are {', '.join(_MODES)}"
            )
    return settings


_settings: dict[str, Mode] = {
    name: "warn" if name in _WARNED else "error" for name in CHECKS
} | _from_environment()


def settings_key() -> tuple:
    """The current modes, in the order of CHECKS: part of a specialisation's identity."""
    return _simulated.get(), _modes(_settings)


_modes = operator.itemgetter(*CHECKS)
_simulated = ContextVar("simulated", default=False)


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Run a kernel for `nki.simulate_kernel`, or trace it for `nki.benchmark`, `nki.profile` or
    `nkisim.profile`. There three errors are warnings, since the SDK's examples contain them:
    instances of a grid that all do the same work, which is of no consequence on hardware; tiles
    placed past the end of SBUF, by an allocator that several kernels share; and iterations of
    affine_range that read what earlier ones wrote, and nobody writes again.
    """
    token = _simulated.set(True)
    try:
        yield
    finally:
        _simulated.reset(token)


def is_simulated() -> bool:
    """Whether a kernel is run by `nki.simulate_kernel`, or profiled."""
    return _simulated.get()


@contextlib.contextmanager
def checks(**modes: Mode) -> Iterator[None]:
    """Turn checks to "error", "warn" or "off" inside a `with` block.

    Args:
        **modes: check name (see CHECKS) to mode.

    Raises:
        ValueError: no such check or mode.
    """
    before = dict(_settings)
    _settings.update(_validated(modes))
    try:
        yield
    finally:
        _settings.update(before)


def current_modes() -> dict[str, Mode]:
    """Check name to mode, now."""
    return dict(_settings)

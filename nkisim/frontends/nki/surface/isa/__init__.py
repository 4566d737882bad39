"""`nki.isa`: the instructions. Each takes its destination first, and casts to its type."""

from collections.abc import Callable
from typing import Any

from nkisim.errors import KernelError
from nkisim.frontends.nki import arguments, releases
from nkisim.frontends.nki.registers import NkiScalar, VirtualRegister
from nkisim.frontends.nki.surface.isa import (
    copies,
    cores,
    dma,
    enums,
    gpsimd,
    mx,
    random,
    registers,
    scalar,
    selects,
    tensor_engine,
    topk,
)
from nkisim.frontends.nki.surface.isa.vector import elementwise, reductions, searches, shuffles
from nkisim.frontends.nki.surface.names import missing

NkiValidationError = KernelError

_PUBLIC = arguments.public(
    "nisa",
    *(copies, cores, dma, enums, gpsimd, mx, random, registers, scalar, selects, tensor_engine),
    *(topk, elementwise, reductions, searches, shuffles),
)
globals().update(_PUBLIC)

__all__ = ["NkiScalar", "NkiValidationError", "VirtualRegister", *_PUBLIC]

__getattr__: Callable[[str], Any] = missing("nki.isa", releases.later(globals(), "nisa"))

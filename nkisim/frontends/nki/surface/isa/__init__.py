"""`nki.isa`: the instructions. Each takes its destination first, and casts to its type."""

from collections.abc import Callable
from typing import Any

from nkisim.errors import KernelError
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.arguments import checked_settings
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

# What an instruction's module lists in its `__all__` is here, with its settings checked.
_FAMILIES = (
    *(copies, cores, dma, enums, gpsimd, mx, random, registers, scalar, selects, tensor_engine),
    *(topk, elementwise, reductions, searches, shuffles),
)
_PUBLIC = {name: vars(family)[name] for family in _FAMILIES for name in family.__all__}
globals().update(_PUBLIC, **checked_settings(_PUBLIC, list(_PUBLIC), "nisa"))

__all__ = ["NkiScalar", "NkiValidationError", "VirtualRegister", *_PUBLIC]

__getattr__: Callable[[str], Any] = missing("nki.isa", releases.later(globals(), "nisa"))

"""Notes which kernels a program launches, to profile them afterwards."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nkisim.runtime.by_data import ProgramByData
from nkisim.runtime.kernel import Kernel, Specialization


@contextmanager
def launches(*, each: bool = False) -> Iterator[list[Specialization]]:
    """While open, every specialisation that is launched enters the list, in order.

    Args:
        each: enter it at every launch, and not only at the first.
    """
    found: list[Specialization] = []
    original = Kernel.specialize

    @functools.wraps(original)
    def specialize(self: Kernel, *args: Any, **kwargs: Any) -> Specialization:
        special = original(self, *args, **kwargs)
        # What runs by data is traced once more.
        if not isinstance(special.program, ProgramByData) and (each or special not in found):
            found.append(special)
        return special

    Kernel.specialize = specialize  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Kernel.specialize = original  # type: ignore[method-assign]

"""Notes which kernels a program launches, to profile them afterwards."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nkisim.kernel import Kernel, Specialization


@contextmanager
def launches() -> Iterator[list[Specialization]]:
    """While open, every specialisation that is launched enters the list, once each, in order."""
    found: list[Specialization] = []
    original = Kernel.specialize

    @functools.wraps(original)
    def specialize(self: Kernel, *args: Any, **kwargs: Any) -> Specialization:
        special = original(self, *args, **kwargs)
        if not any(special is s for s in found):
            found.append(special)
        return special

    Kernel.specialize = specialize
    try:
        yield found
    finally:
        Kernel.specialize = original

"""A kernel of `import nki` that a page shows with what it prints and how long it takes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

import nkisim
from nkisim.machine import GEN3


@dataclass(frozen=True)
class Example:
    """A kernel, and what the page shows of it.

    Attributes:
        kernel: under `nki.jit`.
        given: its inputs, as lines of Python.
        call: the expression that is printed.
        notice: what to see in it, in a sentence or two, as reStructuredText.
        large: the shapes of inputs for which the instruction is modelled; none of a name that is no
            instruction. Their types are those of the inputs.
        cores: how many the kernel is launched on there.
    """

    kernel: Any
    given: str
    call: str
    notice: str
    large: tuple[tuple[int, ...], ...] = ()
    cores: int = 1

    def run(self) -> np.ndarray:
        """What `call` gives, on trn2."""
        space: dict[str, Any] = {"np": np, self.kernel.__name__: self.kernel.on(GEN3)}
        exec(self.given, space)
        return np.asarray(eval(self.call, space))

    def text(self) -> str:
        """The source, the inputs and the call, and what it prints, as Python."""
        printed = "\n".join(f"# {line}" for line in str(self.run()).split("\n"))
        source = inspect.getsource(self.kernel.func)
        return f"{source}\n{self.given}\nprint({self.call})\n{printed}"

    def modelled(self, instruction: str) -> str:
        """How long the first call of `nisa.instruction` takes with the large inputs; a sentence."""
        space: dict[str, Any] = {}
        exec(self.given, {"np": np}, space)
        of_shape: dict[str, list[str]] = {}
        for (name, array), shape in zip(space.items(), self.large, strict=True):
            of_shape.setdefault(f"{' x '.join(map(str, shape))} {array.dtype}", []).append(name)
        specs = [
            nkisim.TensorSpec(shape, array.dtype)
            for array, shape in zip(space.values(), self.large, strict=True)
        ]
        profile = nkisim.profile(self.kernel.on(GEN3)[self.cores], *specs).on_core(0)
        lines, first = inspect.getsourcelines(self.kernel.func)
        line = first + next(i for i, text in enumerate(lines) if f"nisa.{instruction}(" in text)
        mine = [i for i in profile.intervals if i.location and i.location.lineno == line]
        us = max(i.end_us for i in mine) - min(i.start_us for i in mine)
        engines = {i.track for i in mine if i.track != "Sync" and not i.track.startswith("DMA")}
        where = f"on {engines.pop()}" if engines else "from the start of the DMA to its end"
        sizes = ", ".join(f"{' and '.join(names)} of {what}" for what, names in of_shape.items())
        return f"With {sizes}: {us:.2g} µs {where}, modelled for trn2."

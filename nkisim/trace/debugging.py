"""Tile values while a kernel is being traced, for `breakpoint()` and `print`.

A kernel called with NumPy arrays has its data at hand. When a debugger asks for a tile, the
instructions written down so far are run on that data. Nothing is computed that nobody looks at.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import numpy as np

from nkisim.errors import KernelError, ParameterError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine
from nkisim.ir.views import view_of
from nkisim.numerics.program import Program
from nkisim.trace.frames import is_ours
from nkisim.trace.tracer import current, tracing


class View(Protocol):
    """A tensor that is no access pattern itself, but has one: those of `import nki`."""

    def describe(self) -> str: ...

    def as_is(self) -> AccessPattern: ...


def values(tensor: AccessPattern | View) -> np.ndarray:
    """What `tensor` holds at this point of the kernel; NaN (or the lowest integer) where nothing
    was written.

    Call it inside a kernel, e.g. from the debugger.

    Raises:
        TraceContextError: outside a kernel.
        ParameterError: the check "values" is an error, as where kernels are judged.
        LookupError: the kernel is traced without data (for JAX or PyTorch, or from TensorSpecs).
    """
    tracer = current()
    if tracer.checker.modes["values"] == "error":
        raise ParameterError(
            "the kernel reads values of a tensor on the host while it is traced",
            rule="a compiler specialises a kernel before there are values, so nothing that follows "
            "from them can be in it; the check `values` is an error here",
            fix="compute it with instructions, nl.* or nisa.*",
        )
    found = _values(tensor)
    tracer.values_read = True
    return found


def _values(tensor: AccessPattern | View) -> np.ndarray:
    """What `values` gives, for whom no check asks."""
    tracer = current()
    if tracer.data is None:
        raise LookupError("the kernel is being traced without data, so its tiles have no values")
    trace = dataclasses.replace(
        tracer.trace,
        instructions=[i for i in tracer.trace.instructions if i.engine is not Engine.HOST],
        partly_written=tracer.checker.partly_written(),
    )
    pattern = tensor if isinstance(tensor, AccessPattern) else tensor.as_is()
    program = Program(trace, [AccessPattern(pattern.buffer)])
    tracer.values_seen = True
    (whole,) = program.run(tracer.data)
    return view_of(whole.reshape(-1).view(pattern.dtype), pattern).copy()


def show(tensor: AccessPattern | View) -> str:
    """A tensor for the debugger: its description, and its values when there are any."""
    if not tracing() or current().data is None or current().checker.modes["values"] == "error":
        return tensor.describe()
    try:
        found = _values(tensor)
    except (KernelError, IndexError) as error:
        return f"{tensor.describe()}\n(not computed: {error})"
    if found.dtype.kind == "V" or found.dtype.itemsize < 2:
        found = found.astype(np.float32)
    return f"{tensor.describe()}\n{np.array2string(found, separator=', ', threshold=64)}"


def shown_to(frame: FrameType, tensor: AccessPattern | View) -> str:
    """The text of a tensor for the frame that asks: what `show` gives for the user's own lines, the
    description for the simulator's, since values would bury what a message says is wrong."""
    return tensor.describe() if is_ours(frame) else show(tensor)


_STOPS = frozenset({"breakpoint", "set_trace"})


def wanted(func: Callable) -> bool:
    """Whether someone may be looking into `func`: then it is traced again on every call."""
    code = getattr(func, "__code__", None)
    stops = code is not None and not _STOPS.isdisjoint(code.co_names)
    return stops or sys.gettrace() is not None

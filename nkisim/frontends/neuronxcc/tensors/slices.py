"""Start, size and step of an integer, a slice or nl.ds on an axis."""

from __future__ import annotations

from typing import Any

from nkisim.errors import IndexingError
from nkisim.frontends.neuronxcc.tensors.ranges import DynSlice
from nkisim.ir.access import AccessPattern
from nkisim.ir.integers import as_int, fix_of_integers

# What an index of one axis is but for where it starts: (size, step), or (shape, coefs) of an index
# tensor; the size is None for an integer, which drops the axis. None stands for a new axis.
Stretch = tuple[Any, Any]

ONE: Stretch = (None, 1)


def bounds_of(target: AccessPattern, k: object, axis: int) -> tuple[int, Stretch]:
    """The start of an integer, a slice or nl.ds on an axis, and its stretch: (size, step)."""
    kind = type(k)
    if kind is int:
        return k, ONE
    extent = target.shape[axis]
    if kind is slice:
        start, stop, step = k.start, k.stop, k.step
        if start is stop is step is None:
            return 0, (extent, 1)
        if step is None and type(start) is type(stop) is int and 0 <= start <= stop:
            return start, (stop - start, 1)
    if kind is DynSlice:
        start, size = as_int(k.start), as_int(k.size)
        if start is None or size is None or size < 0:
            raise IndexingError(
                f"nl.ds({k.start!r}, {k.size!r}) is not a range of known integers",
                rule="the size of nl.ds is an integer known while tracing; its start is one too, "
                "or a tile of one integer",
                fix="use shapes, loop indices and constants",
            )
        return start, (size, 1)
    given = (k.start, k.stop, k.step)
    parts = [p if p is None or type(p) is int else as_int(p) for p in given]
    if any([p is None and q is not None for p, q in zip(parts, given, strict=True)]):
        raise IndexingError(
            f"{k!r} of {target.describe()} has bounds that are not known integers",
            rule="slice bounds are integers known while tracing",
            fix=fix_of_integers(
                given,
                "for an index expression use nl.arange: t[start + nl.arange(n)[:, None], ...]",
            ),
        )
    start, stop, step = parts[0] or 0, parts[1], 1 if parts[2] is None else parts[2]
    if step < 1:
        raise IndexingError(
            f"slice step {step} of {target.describe()}",
            rule="slice steps are positive",
            fix="walk backwards with an index: (n - 1) - nl.arange(n)[None, :]",
        )
    stop = extent if stop is None else stop
    start += extent if start < 0 else 0
    stop += extent if stop < 0 else 0
    return start, (max(0, -((start - stop) // step)), step)

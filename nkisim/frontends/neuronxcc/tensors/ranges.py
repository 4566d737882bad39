"""Ranges of indices: nl.arange, nl.mgrid and nl.ds."""

from __future__ import annotations

import functools
from typing import NamedTuple

from nkisim.errors import IndexingError
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor
from nkisim.ir.integers import as_int, fix_of_integers


class DynSlice(NamedTuple):
    """`nl.ds(start, size)`: the range `start : start + size`."""

    start: int | IndexTensor
    size: int


def arange(*args: int) -> IndexTensor:
    """`arange(stop)` or `arange(start, stop)`: a one-axis index. Needs a new axis before use."""
    if len(args) == 1 and type(args[0]) is int:
        return _line(0, args[0])
    numbers = [as_int(a) for a in args]
    if len(args) == 3 and None not in numbers and numbers[2]:
        start, _, step = numbers
        raise IndexingError(
            f"nl.arange({', '.join([repr(a) for a in args])}) has a step",
            rule="nl.arange(stop) or nl.arange(start, stop): an index grows by one",
            fix=f"multiply the index: {start} + {step} * nl.arange({len(range(*numbers))})",
        )
    if len(args) not in (1, 2) or None in numbers:
        raise IndexingError(
            f"nl.arange({', '.join([repr(a) for a in args])}) is not a range of known integers",
            rule="nl.arange(stop) or nl.arange(start, stop), with integers known while tracing",
            fix=fix_of_integers(
                args,
                "use shapes, loop indices and constants; multiply the index for a step: "
                "2 * nl.arange(n)",
            ),
        )
    return _line(0, numbers[0]) if len(args) == 1 else _line(*numbers)


@functools.lru_cache(maxsize=4096)
def _line(start: int, stop: int) -> IndexTensor:
    size = max(0, stop - start)
    return IndexTensor((size,), (1 if size != 1 else 0,), start)


class MeshGrid(tuple):
    """What `nl.mgrid[...]` gives: one dense index an axis, also by name (.p, .x, .y, .z, .w)."""

    def __init__(self, indices: object) -> None:
        for name, index in zip("pxyzw", self, strict=False):
            setattr(self, name, index)

    def __getattr__(self, name: str) -> IndexTensor:
        raise AttributeError(f"a mesh grid of {len(self)} axes has no axis {name!r}")


class MGrid:
    """`nl.mgrid[0:P, 0:F]`: dense index tensors of one shape, as `numpy.mgrid` gives."""

    def __getitem__(self, key: object) -> MeshGrid:
        keys = key if isinstance(key, tuple) else (key,)
        shape: list[int] = []
        starts: list[int] = []
        steps: list[int] = []
        for k in keys:
            ok = isinstance(k, slice) and k.stop is not None
            start = as_int(k.start or 0) if ok else None
            stop = as_int(k.stop) if ok else None
            step = as_int(1 if k.step is None else k.step) if ok else None
            if start is None or stop is None or not step:
                raise IndexingError(
                    f"nl.mgrid[{k!r}] is not a range of known integers",
                    rule="each axis of nl.mgrid is start:stop or start:stop:step, in integers "
                    "known while tracing",
                    fix="write nl.mgrid[0:128, 0:512]",
                )
            shape.append(len(range(start, stop, step)))
            starts.append(start)
            steps.append(step)
        return _grid(tuple(shape), tuple(starts), tuple(steps))


@functools.lru_cache(maxsize=4096)
def _grid(shape: tuple[int, ...], starts: tuple[int, ...], steps: tuple[int, ...]) -> MeshGrid:
    return MeshGrid(
        IndexTensor(
            shape,
            tuple(step if a == axis and shape[a] > 1 else 0 for a in range(len(shape))),
            start,
        )
        for axis, (start, step) in enumerate(zip(starts, steps, strict=True))
    )

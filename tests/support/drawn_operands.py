"""Access patterns and masks that hypothesis draws, each in two forms: the kernel's and NumPy's.

A kernel writes `tile[32 + i_p, 3 + 2 * i_f]`; the reference takes the slice `[32:40, 3:19:2]` of an
array. `run` puts one instruction between such operands and gives the whole destination, so that
what must not change is compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BF16]
INTEGERS = [np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)]
TOLERANCE = {"float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
some = settings(max_examples=12, deadline=None)

shapes = st.one_of(
    st.tuples(st.integers(1, 32), st.integers(1, 40)),
    st.tuples(st.integers(1, 32), st.integers(1, 7), st.integers(1, 9)),
)


@dataclass(frozen=True)
class Pattern:
    """Elements `start + step * index` of a tile with `base` elements along each axis.

    The first axis is the partition axis. `order` says which index runs along which axis of the
    tile, so (0, 2, 1) reads a tile whose free axes are the other way round.
    """

    shape: tuple[int, ...]
    base: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    order: tuple[int, ...]

    def of_tile(self, tile, form: str = "arange"):
        """The kernel's form: index tensors, or slices where the order allows."""
        if form == "slice" and self.order == tuple(range(len(self.shape))):
            return tile[self._slices()]
        index = indices(self.shape)
        along = zip(self.starts, self.steps, self.order, strict=True)
        return tile[tuple(start + step * index[axis] for start, step, axis in along)]

    def of_array(self, array: np.ndarray) -> np.ndarray:
        """NumPy's form: a view, with the axes in the order of the indices."""
        return array[self._slices()].transpose(np.argsort(self.order))

    def _slices(self) -> tuple[slice, ...]:
        sizes = [self.shape[axis] for axis in self.order]
        return tuple(
            slice(start, start + step * (size - 1) + 1, step)
            for start, step, size in zip(self.starts, self.steps, sizes, strict=True)
        )


@st.composite
def patterns(draw: Callable, shape: tuple[int, ...]) -> Pattern:
    """A pattern of `shape` in a tile that is larger in every free direction."""
    free = list(range(1, len(shape)))
    order = (0, *draw(st.permutations(free)))
    starts = [draw(st.sampled_from([0, 32, 64, 96]))]
    steps = [1]
    starts += [draw(st.integers(0, 3)) for _ in free]
    steps += [draw(st.integers(1, 3)) for _ in free]
    spare = [draw(st.integers(0, 2)) for _ in free]
    base = [starts[0] + shape[0]]
    for start, step, axis, extra in zip(starts[1:], steps[1:], order[1:], spare, strict=True):
        base.append(start + step * (shape[axis] - 1) + 1 + extra)
    return Pattern(shape, tuple(base), tuple(starts), tuple(steps), order)


def indices(shape: tuple[int, ...]) -> tuple:
    """`nl.arange` of each axis, shaped to broadcast to `shape`."""
    rank = len(shape)
    return tuple(
        nl.arange(size)[tuple(slice(None) if a == axis else None for a in range(rank))]
        for axis, size in enumerate(shape)
    )


@dataclass(frozen=True)
class Mask:
    """`sum(c * index) < bound` for each (coefficients, bound); all of them must hold."""

    terms: tuple[tuple[tuple[int, ...], int], ...]

    def of_kernel(self, shape: tuple[int, ...]):
        """The mask of index expressions; None where nothing is masked."""
        index = indices(shape)
        mask = None
        for coefficients, bound in self.terms:
            left = sum(c * i for c, i in zip(coefficients, index, strict=True) if c)
            mask = left < bound if mask is None else mask & (left < bound)
        return mask

    def of_array(self, shape: tuple[int, ...]) -> np.ndarray:
        """A boolean array of `shape`."""
        index = np.indices(shape)
        keep = np.ones(shape, bool)
        for coefficients, bound in self.terms:
            keep &= sum(c * i for c, i in zip(coefficients, index, strict=True)) < bound
        return keep


@st.composite
def masks(draw: Callable, shape: tuple[int, ...]) -> Mask:
    """No mask, a box, or a condition that couples two axes; never one that keeps nothing."""
    kind = draw(st.sampled_from(["none", "box", "coupled"]))
    if kind == "none":
        return Mask(())
    if kind == "box":
        axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
        unit = np.eye(len(shape), dtype=int)
        return Mask(
            tuple((tuple(map(int, unit[a])), draw(st.integers(1, shape[a]))) for a in sorted(axes))
        )
    coefficients = draw(
        st.lists(st.integers(-2, 2), min_size=len(shape), max_size=len(shape)).filter(any)
    )
    low = sum(min(c, 0) * (n - 1) for c, n in zip(coefficients, shape, strict=True))
    high = sum(max(c, 0) * (n - 1) for c, n in zip(coefficients, shape, strict=True))
    return Mask(((tuple(coefficients), draw(st.integers(low + 1, high + 1))),))


def numbers(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0, low=-3.0, high=3.0):
    """Uniform numbers; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(max(limits.min, -100), min(limits.max, 100), shape).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def run(body: Callable, destination: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    """Load all arrays, call `body(destination tile, *tiles)`, give the whole destination."""

    @nki.jit(mode="simulation")
    def kernel(destination, arrays):
        out = nl.ndarray(destination.shape, dtype=destination.dtype, buffer=nl.shared_hbm)
        tile = nl.load(destination)
        body(tile, *(nl.load(a) for a in arrays))
        nl.store(out, tile)
        return out

    return kernel(destination, list(arrays))


def close(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal to the output type's rounding; exactly equal for integers."""
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = TOLERANCE[got.dtype.name]
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def written(destination, pattern: Pattern, mask: Mask, values: np.ndarray) -> np.ndarray:
    """What the destination holds after `values` were written through pattern and mask."""
    expected = destination.copy()
    view = pattern.of_array(expected)
    keep = mask.of_array(pattern.shape)
    view[keep] = np.broadcast_to(values, pattern.shape)[keep].astype(destination.dtype)
    return expected

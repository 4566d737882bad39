"""Iterations that use parts of their own, against all pairs of uses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.checking.iterations import Access, have_own_parts
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Buffer, Space

SHAPE = (24, 24)
BUFFER = Buffer(0, SHAPE, np.dtype(np.float32), Space.SBUF)
WHOLE = Tensor(BUFFER)
ELEMENTS = np.arange(WHOLE.size).reshape(SHAPE)


def told(uses, affine, slopes=None):
    accesses = [Access(WHOLE[key], *how) for key, *how in uses]
    return have_own_parts(BUFFER, accesses, affine, slopes or {})


def clash(uses, affine):
    """Whether two iterations of an affine loop touch an element that one of them writes."""
    for (key, path, writes, adds), (other, where, changes, sums) in itertools.combinations(uses, 2):
        steps = zip(path, where, strict=False)
        (loop, _), (second, _) = next(((a, b) for a, b in steps if a != b), ((-1, 0), (-1, 0)))
        if (writes or changes) and not (adds and sums) and loop == second and loop in affine:
            mine = set(np.ravel(ELEMENTS[key]).tolist())
            if not mine.isdisjoint(np.ravel(ELEMENTS[other]).tolist()):
                return True
    return False


@st.composite
def use(draw):
    """A box, often one that the iteration names, in an iteration of a loop or of a loop in it."""
    path = draw(
        st.sampled_from([((0, i),) for i in range(3)])
        | st.tuples(
            st.tuples(st.just(0), st.integers(0, 2)),
            st.tuples(st.sampled_from([1, 2]), st.integers(0, 1)),
        )
    )
    key = []
    for axis, n in enumerate(SHAPE):
        start = draw(st.integers(0, n - 1))
        if axis < len(path) and draw(st.integers(0, 3)):
            start = 2 * path[axis][1]
        key.append(slice(start, draw(st.integers(start + 1, min(n, start + 2)))))
    writes = draw(st.booleans())
    return tuple(key), path, writes, writes and draw(st.booleans())


@given(st.lists(use(), min_size=1, max_size=6), st.sets(st.sampled_from([0, 1, 2])))
def test_iterations_that_have_own_parts_do_not_clash(uses, affine):
    if told(uses, affine):
        assert not clash(uses, affine)


def tiles(shift):
    """Each of six iterations writes its block, and each of two in it reads half of one."""
    for i in range(6):
        yield (i,), ((0, i),), True, False
        for j in range(2):
            part = ((i + shift) % 6, slice(12 * j, 12 * j + 12))
            yield part, ((0, i), (1, j)), False, False


@pytest.mark.parametrize(
    ("uses", "affine", "own"),
    [
        (tiles(0), {0, 1}, True),
        (tiles(1), {0, 1}, False),  # the next iteration's block
        (tiles(1), {1}, True),  # where iterations of the outer loop are in order
        ([((0,), ((0, i),), False, False) for i in range(6)], {0}, True),  # all read
        ([((0,), ((0, i),), True, True) for i in range(6)], {0}, True),  # all add
        ([((0,), ((0, i),), True, False) for i in range(6)], {0}, False),
        ([((0,), (), True, False), ((0,), ((0, 1),), False, False)], {0}, True),
    ],
)
def test_what_iterations_share(uses, affine, own):
    uses = list(uses)
    assert told(uses, affine) == own
    assert clash(uses, affine) != own


@st.composite
def even(draw):
    """Uses in two loops, one in the other, that move evenly with both loop indices: all of them,
    those of the first and last iterations, and how far they move."""
    outer = draw(st.sampled_from([(1, 0), (2, 0), (0, 1), (1, 1)]))
    inner = draw(st.sampled_from([(0, 1), (0, 2), (1, 0), (0, 0)]))
    every, some = [], []
    for _ in range(draw(st.integers(1, 3))):
        writes = draw(st.booleans())
        accumulates = writes and draw(st.booleans())
        start, size = (draw(st.tuples(st.integers(lo, 2), st.integers(lo, 2))) for lo in (0, 1))
        inside = draw(st.booleans())
        for i in range(5):
            for j in range(5) if inside else [0]:
                path = ((0, i), (1, j)) if inside else ((0, i),)
                key = tuple(
                    slice(a + i * s + j * t, a + i * s + j * t + n)
                    for a, n, s, t in zip(start, size, outer, inner, strict=True)
                )
                every.append((key, path, writes, accumulates))
                if {i, j} <= {0, 4}:
                    some.append(every[-1])
    return every, some, {0: outer, 1: inner}


@given(even(), st.sets(st.sampled_from([0, 1])))
def test_first_and_last_iterations_tell_of_those_between(uses, affine):
    every, some, slopes = uses
    if told(some, affine, slopes):
        assert not clash(every, affine)


def test_windows_of_iterations():
    """Each iteration reads what it writes, and no more, or what the next but one does."""
    written = [((slice(2 * i, 2 * i + 2),), ((0, i),), True, False) for i in (0, 9)]
    slopes = {0: (2, 0)}
    assert told([*written, ((1,), ((0, 0),), False, False)], {0}, slopes)
    assert not told([*written, ((4,), ((0, 0),), False, False)], {0}, slopes)

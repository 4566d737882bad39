"""Rolled traces: the same instructions as tracing every iteration, or none at all."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traces import Tally, like, rolled, same, spec, stream

import nkisim
from nkisim.checking.uses import LoopUses
from nkisim.errors import (
    KernelError,
    LoopError,
    NkiWarning,
    OutOfBoundsError,
    RaceError,
    UninitializedReadError,
)
from nkisim.frontends.neuronxcc.nki import compiler as ncc
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

# -- kernels that roll --------------------------------------------------------------------------


def columns(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0] // 128):
        for j in nl.affine_range(x.shape[1] // 64):
            at = slice(i * 128, (i + 1) * 128), slice(j * 64, (j + 1) * 64)
            nl.store(y[at], nl.load(x[at]) * 2.0 + 1.0)
    return y


def masked(x):
    y = like(x)
    p, f = nl.mgrid[0:128, 0 : x.shape[1]]
    for i in nl.affine_range(-(-x.shape[0] // 128)):
        inside = i * 128 + p < x.shape[0]
        tile = nl.load(x[i * 128 + p, f], mask=inside)
        nl.store(y[i * 128 + p, f], nl.exp(tile), mask=inside)
    return y


def last_is_short(x):
    y = like(x)
    for i in nl.static_range(-(-x.shape[1] // 64)):
        at = slice(i * 64, min((i + 1) * 64, x.shape[1]))
        nl.store(y[:, at], nl.load(x[:, at]))
    return y


def product(a, b):
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), a.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(n // 512):
        acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(k // 128):
            left = nl.load(a[i * 128 : (i + 1) * 128])
            right = nl.load(b[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512])
            acc += nl.matmul(left, right, transpose_x=True)
        nl.store(out[:, j * 512 : (j + 1) * 512], nl.copy(acc, dtype=a.dtype))
    return out


def sums_without_zeros(a, b):
    """The first product starts the sum in each of some blocks, and the others go on."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((k // 128, nl.par_dim(128), m), a.dtype)
    for i in nl.affine_range(k // 128):
        left[i] = nl.load(a[nl.ds(i * 128, 128)])
    for j in nl.affine_range(n // 512):
        right = nl.ndarray((k // 128, nl.par_dim(128), 512), b.dtype)
        sums = nl.ndarray((m // 128, nl.par_dim(128), 512), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(k // 128):
            right[i] = nl.load(b[nl.ds(i * 128, 128), nl.ds(j * 512, 512)])
            for h in nl.affine_range(m // 128):
                sums[h] += nisa.nc_matmul(left[i, :, nl.ds(h * 128, 128)], right[i])
        for h in nl.affine_range(m // 128):
            nl.store(out[nl.ds(h * 128, 128), nl.ds(j * 512, 512)], nisa.tensor_copy(sums[h]))
    return out


def masked_operands(a, b):
    """Operands of a matmul have masks of their own, which depend on the outer index."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), a.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:512]
    left, right = (nl.zeros((k // 128, nl.par_dim(128), s), a.dtype) for s in (128, n))
    for i in nl.affine_range(k // 128):
        left[i] = nl.load(a[nl.ds(i * 128, 128)])
        right[i] = nl.load(b[nl.ds(i * 128, 128)])
    for j in nl.affine_range(-(-n // 512)):
        acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        inside = j * 512 + f < n
        for i in nl.affine_range(k // 128):
            acc += nisa.nc_matmul(left[i], right[i, p, j * 512 + f][inside])
        q, g = nl.mgrid[0:m, 0:512]
        nl.store(out[q, j * 512 + g], nl.copy(acc, dtype=a.dtype), mask=j * 512 + g < n)
    return out


def blocks_kept(x):
    """All tiles in one tensor with a block axis, filled in one loop and read in another."""
    n = x.shape[0] // 128
    tiles = nl.ndarray((n, nl.par_dim(128), x.shape[1]), x.dtype, buffer=nl.sbuf)
    y = like(x)
    for i in nl.affine_range(n):
        tiles[i] = nl.load(x[i * 128 : (i + 1) * 128])
    for i in nl.affine_range(n):
        back = n - 1 - i
        nl.store(y[i * 128 : (i + 1) * 128], nl.add(tiles[i], tiles[back]))
    return y


def running_sum(x):
    total = nl.zeros((128, x.shape[1]), x.dtype, buffer=nl.sbuf)
    y = like(x)
    for i in nl.sequential_range(x.shape[0] // 128):
        total[...] += nl.load(x[i * 128 : (i + 1) * 128])
        nl.store(y[i * 128 : (i + 1) * 128], total)
    return y


def on_the_grid(x):
    y = like(x)
    i, j = nl.program_id(0), nl.program_id(1)
    for half in nl.static_range(2):
        at = slice(i * 128, (i + 1) * 128), slice(j * 64 + half * 32, j * 64 + half * 32 + 32)
        nl.store(y[at], nisa.activation(nl.exp, nl.load(x[at])))
    return y


def a_window(x):
    """Reads reach over what neighbouring iterations read; writes do not."""
    y = nl.ndarray((128, x.shape[1] - 2), x.dtype, buffer=nl.shared_hbm)
    row = nl.load(x)
    for i in nl.affine_range(x.shape[1] - 2):
        nl.store(y[:, i : i + 1], nl.max(row[:, i : i + 3], axis=1, keepdims=True))
    return y


def unrolled(x):
    """nl.static_range, and tiles that are placed by hand, all at one address."""
    place = ncc.sbuf.mod_alloc(base_addr=0)
    y = like(x)
    for i in nl.static_range(x.shape[0]):
        tile = nl.ndarray((nl.par_dim(128), x.shape[2]), x.dtype, buffer=place)
        tile[...] = nl.load(x[i])
        nl.store(y[i], tile)
    return y


def short_ends(x):
    """Loops in loops; the last iteration of each inner one is masked."""
    y = like(x)
    p, f = nl.mgrid[0:128, 0:16]
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(-(-x.shape[1] // 128)):
            for k in nl.affine_range(-(-x.shape[2] // 16)):
                inside = (j * 128 + p < x.shape[1]) & (k * 16 + f < x.shape[2])
                tile = nl.load(x[i, j * 128 + p, k * 16 + f], mask=inside)
                nl.store(y[i, j * 128 + p, k * 16 + f], tile * 2.0, mask=inside)
    return y


def by_outer_index(x):
    """How far the inner loop moves is decided by the outer one."""
    n = x.shape[1] // 128
    y = nl.ndarray((x.shape[0], n, 128, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(n):
            at = i * j
            nl.store(y[i, j], nl.load(x[i, at : at + 128]))
    return y


def two_bodies(x):
    """The inner loop does more in every other iteration of the outer one."""
    y = like(x)
    for i in nl.static_range(x.shape[0]):
        for j in nl.affine_range(x.shape[1] // 128):
            tile = nl.load(x[i, j * 128 : (j + 1) * 128])
            nl.store(y[i, j * 128 : (j + 1) * 128], tile if i % 2 else tile * 2.0)
    return y


def pythons_range(x):
    """Loops of Python, around one of NKI and inside of it; the tile of the last one is kept."""
    y = like(x)
    for i in range(x.shape[0]):
        for j in nl.affine_range(x.shape[1] // 128):
            for k in range(x.shape[2] // 8, 0, -1):
                at = slice(j * 128, (j + 1) * 128), slice((k - 1) * 8, k * 8)
                tile = nl.load(x[i][at])
                nl.store(y[i][at], tile * 2.0)
    return y


def kept_behind_the_loop(x):
    y = like(x)
    for i in range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(y[i], tile)
    nl.store(y[0], tile)
    return y


def kept_behind_inner_loops(x):
    """Tiles of the last iteration of one loop, and of each one of another, which is short."""
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        for k in range(x.shape[2] // 8):
            at = slice(0, 128), slice(k * 8, (k + 1) * 8)
            last = nl.load(x[i][at])
            nl.store(y[i][at], last * 2.0)
        for tile in [nl.load(x[i][0:128, n * 8 : n * 8 + 8]) for n in range(2)]:
            last = nl.add(last, tile)
        nl.store(y[i][0:128, 0:8], last)
    return y


def kept_of_a_loop_for_the_next(x):
    """Each iteration of a loop uses a tile that the last one of another loop has made."""
    y = like(x)
    for i in range(3):
        tile = nl.load(x[i])
        nl.store(y[i], tile)
    for i in nl.affine_range(3, x.shape[0]):
        nl.store(y[i], nl.add(nl.load(x[i]), tile))
    for i in range(x.shape[0]):
        other = nl.add(nl.load(x[i]), tile)
        nl.store(y[i], other)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i], nl.add(nl.load(x[i]), other))
    return y


def assigned_behind_the_loop(x):
    """The last tile of Python's loop is written where it is assigned, as if there was no loop."""
    y, kept = like(x), nl.ndarray((128, x.shape[2]), x.dtype)
    for i in range(x.shape[0]):
        tile = nl.load(x[i])
    kept[...] = tile
    nl.store(y[0], kept)
    return y


def assigned_in_the_next_iteration(x):
    y, tile = like(x), nl.load(x[0])
    for i in range(x.shape[0]):
        kept = nl.ndarray((128, x.shape[2]), x.dtype)
        kept[...] = tile
        nl.store(y[i], kept)
        tile = nl.load(x[i])
    return y


def kept_of_another_iteration(x):
    """What the second last iteration of a loop has made is used behind it."""
    y, made = like(x), []
    for i in range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(y[i], tile)
        made = [tile, *made[:1]]
    nl.store(y[0], made[1])
    return y


def a_sum_read_again(x):
    """A product is added to an accumulator, and then read in a loop after all."""
    y = like(x)
    total = nl.zeros((8, 8), nl.float32, buffer=nl.psum)
    for i in nl.sequential_range(x.shape[0]):
        made = nisa.nc_matmul(nl.load(x[i, 0]), nl.load(x[i, 1]))
        total += made
        for j in nl.sequential_range(x.shape[1]):
            nl.store(y[i, j, 0:8], nl.copy(made))
            nl.store(y[i, j, 8:128], nl.load(x[i, j, 8:128]))
    nl.store(y[0, 0, 0:8], nl.copy(total))
    return y


def a_generators_style(x):
    """All tiles of the kernel in tensors with an axis for each loop around them, one of them
    filled, and used in parts, in the style of texts that a compiler writes."""
    rows, inner, width = x.shape[0] // 128, 3, x.shape[1] // 4
    p, f = nl.arange(128)[:, None], nl.arange(width)[None, :]
    y = like(x)
    tiles = nl.ndarray((rows, 2, nl.par_dim(128), 2 * width), x.dtype, buffer=nl.sbuf)
    sums = nl.zeros((rows, 2, 2, nl.par_dim(128), width), nl.float32, buffer=nl.sbuf)
    both = nl.arange(2 * width)[None, :]
    for i in nl.affine_range(rows):
        for j in nl.affine_range(2):
            tiles[i, j, p, both] = nl.load(x[i * 128 + p, j * 2 * width + both])
            for k in nl.affine_range(2):
                for _ in nl.affine_range(inner):
                    sums[i, j, k, p, f] += tiles[i, j, p, k * width + f]
    for i in nl.affine_range(rows):
        for j in nl.affine_range(2):
            for k in nl.affine_range(2):
                tiles[i, j, p, k * width + f] = nl.multiply(sums[i, j, k, p, f], 0.5)
            nl.store(y[i * 128 + p, j * 2 * width + both], tiles[i, j, p, both])
    return y


UNIFORM = {
    "Python's range": (Kernel(pythons_range), spec(7, 128 * 5, 8 * 6)),
    "a tile behind the loop": (Kernel(kept_behind_the_loop), spec(12, 128, 8)),
    "tiles behind inner loops": (Kernel(kept_behind_inner_loops), spec(12, 128, 8 * 9)),
    "a tile for the next loop": (Kernel(kept_of_a_loop_for_the_next), spec(12, 128, 8)),
    "short ends": (Kernel(short_ends), spec(7, 128 * 8 + 3, 16 * 6 + 5)),
    "by the outer index": (Kernel(by_outer_index), spec(7, 128 * 9, 16)),
    "two bodies": (Kernel(two_bodies), spec(7, 128 * 9, 16)),
    "unrolled": (Kernel(unrolled), spec(12, 128, 8)),
    "loops": (Kernel(columns), spec(128 * 9, 64 * 11)),
    "one long loop": (Kernel(columns), spec(128, 64 * 40)),
    "masked": (Kernel(masked), spec(128 * 10 + 5, 32)),
    "a short last tile": (Kernel(last_is_short), spec(128, 64 * 12 + 3)),
    "accumulation": (Kernel(product), spec(128 * 12, 128), spec(128 * 12, 512 * 9)),
    "sums": (Kernel(sums_without_zeros), spec(128 * 9, 128 * 4), spec(128 * 9, 512 * 4)),
    "masked operands": (Kernel(masked_operands), spec(128 * 12, 128), spec(128 * 12, 512 * 9 - 7)),
    "blocks": (Kernel(blocks_kept), spec(128 * 10, 16)),
    "in order": (Kernel(running_sum), spec(128 * 10, 16)),
    "grid": (Kernel(on_the_grid)[10, 9], spec(1280, 576)),
    "one long grid axis": (Kernel(on_the_grid)[2, 9], spec(256, 576)),
    "cores": (Kernel(on_the_grid)[nl.spmd_dim(nl.nc(2), 8), 1], spec(2048, 64)),
    "window": (Kernel(a_window), spec(128, 40)),
    "in a generator's style": (Kernel(a_generators_style), spec(128 * 9, 32)),
    "a sum read again": (Kernel(a_sum_read_again), spec(10, 12, 128, 8)),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_rolled_traces_are_whole(name):
    kernel, *args = UNIFORM[name]
    same(kernel, *args)
    assert nkisim.profile(kernel, *args).latency_us == pytest.approx(
        nkisim.runtime.profiling.timeline(kernel.specialize(args, {}).program.trace).latency_us,
        rel=1e-12,
    )


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 11),
    width=st.integers(1, 40),
    step=st.integers(1, 7),
    start=st.integers(0, 3),
    stride=st.integers(1, 3),
)
def test_any_even_addresses(rows, width, step, start, stride):
    """Reads `step` columns further on in each round, every `stride`-th of them, in both ways."""
    trips = 12

    def kernel(x):
        y = nl.ndarray((trips, rows, width), x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:rows, 0:width]
        for i in nl.affine_range(start, start + trips):
            tile = nl.load(x[p, i * step + f * stride])
            back = start + trips - 1 - i
            nl.store(y[back, p, f], tile, mask=2 * p < rows + 1)
        return y

    columns = (start + trips) * step + width * stride
    with nkisim.checks(output="off"):
        same(Kernel(kernel), spec(rows, columns))


@pytest.mark.parametrize(
    "name", ["a tile behind the loop", "tiles behind inner loops", "masked operands"]
)
def test_loops_are_traced_in_part(name):
    found = rolled(*UNIFORM[name])
    assert sum(i.origin is None for i in found.instructions) < 0.6 * len(found.instructions)


def test_few_iterations_are_traced():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(1000):
            ran.note()
            nl.store(y[i], nl.load(x[i]))
        return y

    found = nkisim.profile(kernel, spec(1000, 128, 16))
    assert ran.times == 5
    assert found.instructions == 2000


def test_an_iteration_may_read_what_the_one_before_has_written():
    ran = Tally()

    def kernel(x):
        y, n = like(x), x.shape[0]
        t = nl.ndarray((n + 1, nl.par_dim(128), 8), x.dtype)
        t[0] = nl.load(x[0])
        for i in nl.sequential_range(n):
            t[i + 1] = nl.add(t[i], nl.load(x[i]))
            nl.store(y[i], t[i])
            ran.note()
        return y

    same(Kernel(kernel), spec(40, 128, 8))
    assert ran.times == 5 + 40


def test_what_only_a_later_iteration_writes_is_not_there():
    def kernel(x):
        y, n = like(x), x.shape[0]
        t = nl.ndarray((n + 2, nl.par_dim(128), 8), x.dtype)
        t[0] = t[1] = nl.load(x[0])
        for i in nl.sequential_range(n):
            if i % 2:
                nl.store(y[i], t[i + 1])
            else:
                t[i] = nl.load(x[i])
                nl.store(y[i], t[i])
        return y

    with pytest.raises(UninitializedReadError) as rolled_error:
        rolled(Kernel(kernel), spec(40, 128, 8))
    with pytest.raises(UninitializedReadError) as whole_error:
        Kernel(kernel).specialize((spec(40, 128, 8),), {})
    assert str(rolled_error.value) == str(whole_error.value)


def test_loops_over_pythons_range_are_traced_in_part():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in range(x.shape[0]):
            ran.note()
            nl.store(y[i], nl.load(x[i]))
        return y

    found = rolled(Kernel(kernel), spec(100, 128, 16))
    assert ran.times == 5
    assert len(found.instructions) == 200
    assert not any(x.loops for x in (*found.instructions, *found.buffers))


def test_fewer_iterations_are_traced_of_a_loop_that_is_known():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(x.shape[0]):
            for j in nl.affine_range(x.shape[1]):
                for k in nl.affine_range(x.shape[2]):
                    ran.note()
                    nl.store(y[i, j, k], nl.load(x[i, j, k]))
        return y

    found = rolled(Kernel(kernel), spec(20, 12, 10, 128, 16))
    assert ran.times == (5 + 2 + 3 * 1) + 2 * 1 + 3 * 1  # (see test_settled_loops.py)
    assert len(found.instructions) == 20 * 12 * 10 * 2


# -- kernels that decide by loop indices ----------------------------------------------------------


def by_parity(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(y[i], tile if i % 2 else tile * 2.0)
    return y


def one_of_them(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(y[i], tile * 2.0 if i == 5 else tile)
    return y


def the_early_ones(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(y[i], tile * 2.0 if i < 6 else tile)
    return y


def a_checkerboard(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(12):
            tile = nl.load(x[i, :, j * 4 : j * 4 + 4])
            nl.store(y[i, :, j * 4 : j * 4 + 4], tile if (i + j) % 2 else tile * 2.0)
    return y


def left_of_a_diagonal(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        total = nl.zeros((128, 4), x.dtype)
        for j in nl.sequential_range(12):
            if j > i:
                continue
            tile = nl.load(x[i, :, j * 4 : j * 4 + 4])
            total[...] += tile * 2.0 if i == j else tile
        nl.store(y[i, :, 0:4], total)
        nl.store(y[i, :, 4:48], nl.load(x[i, :, 4:48]))
    return y


def masked_on_a_diagonal(x):
    y = like(x)
    row, column = nl.mgrid[0:128, 0:4]
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(12):
            tile = nl.load(x[i, :, j * 4 : j * 4 + 4])
            if j * 4 <= i * 8 + 4:
                keep = i * 8 + row >= j * 4 + column
                tile = nisa.affine_select(keep, tile, -1.0)
            nl.store(y[i, :, j * 4 : j * 4 + 4], tile)
    return y


def by_turns(x):
    buffers = nl.ndarray((2, nl.par_dim(128), x.shape[2]), x.dtype, buffer=nl.sbuf)
    y = like(x)
    for i in nl.sequential_range(x.shape[0]):
        buffers[i % 2] = nl.load(x[i])
        nl.store(y[i], buffers[i % 2])
    return y


def in_rows_of_twelve(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0] * 12):
        part = nl.ds(i % 12 * 4, 4)
        nl.store(y[i // 12, :, part], nl.load(x[i // 12, :, part]))
    return y


def counting_up(x):
    y = like(x)
    row, column = nl.mgrid[0:128, 0:48]
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i], nl.load(x[i]) + nisa.iota(i * 48 + row + column, nl.float32))
    return y


def by_halves(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i // 2 + (x.shape[0] // 2 if i % 2 else 0)], nl.load(x[i]))
    return y


DECIDED = [
    by_parity, one_of_them, the_early_ones, a_checkerboard, left_of_a_diagonal,
    masked_on_a_diagonal, counting_up, by_halves, by_turns, in_rows_of_twelve,
]  # fmt: skip


@pytest.mark.parametrize("function", DECIDED, ids=lambda f: f.__name__)
def test_iterations_that_decide_alike_are_copies_of_one(function):
    found = same(Kernel(function), spec(20, 128, 48))
    traced = sum(i.origin is None for i in found.instructions)
    assert traced < 0.7 * len(found.instructions)


def test_few_iterations_of_each_strand_are_traced():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(100):
            ran.note()
            tile = nl.load(x[i])
            nl.store(y[i], tile if i % 3 == 1 else tile * 2.0)
        return y

    found = same(Kernel(kernel), spec(100, 128, 8))
    assert ran.times == 3 * 5 + 100  # then all of them, to compare
    assert len(found.instructions) == 200 + 67


# -- kernels that are not even --------------------------------------------------------------------


def placed_apart(x):
    y = like(x)
    for i in nl.static_range(x.shape[0]):
        place = ncc.sbuf.mod_alloc(base_addr=i * x.shape[2] * 4)
        tile = nl.ndarray((nl.par_dim(128), x.shape[2]), x.dtype, buffer=place)
        tile[...] = nl.load(x[i])
        nl.store(y[i], tile)
    return y


def in_a_list(x):
    rows, y = [], like(x)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i], nl.load(x[i]))
        rows.append(x[i])
    for i, row in enumerate(rows):
        nl.store(y[i], nl.load(row))
    return y


def in_a_list_of_the_caller(x):
    rows, y = [], like(x)

    def copy():
        for i in nl.affine_range(x.shape[0]):
            nl.store(y[i], nl.load(x[i]))
            rows.append(i)

    copy()
    for i, _ in enumerate(rows):
        nl.store(y[i], nl.load(x[i]))
    return y


def counted(x):
    at, y = 0, like(x)
    for _ in nl.static_range(x.shape[0]):
        nl.store(y[at], nl.load(x[at]))
        at = at + 1
    return y


def counted_by_turns(x):
    at, y = 0, like(x)
    for i in nl.static_range(x.shape[0]):
        nl.store(y[i], nl.load(x[at]))
        if i % 2:
            at = at + 1
    return y


def counted_in_a_list(x):
    at, y = [0], like(x)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i], nl.load(x[at[0]]))
        at[0] += 1
    return y


def counted_for_later(x):
    n, y = 0, like(x)
    for i in nl.static_range(x.shape[0]):
        nl.store(y[i], nl.load(x[i]))
        n += i
    nl.store(y[0], nl.full((128, x.shape[2]), n, x.dtype))
    return y


def triangle(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        total = nl.zeros((128, x.shape[2]), x.dtype)
        for j in nl.sequential_range(i + 1):
            total[...] += nl.load(x[j])
        nl.store(y[i], total)
    return y


def left_early(x):
    y = like(x)
    for i in nl.sequential_range(x.shape[0]):
        nl.store(y[i], nl.load(x[i]))
        if i >= x.shape[0] - 1:
            break
    return y


def a_table(x):
    order, y = [3, 1, 0, 2, 4, 5, 6, 7, 9, 8, 10, 11], like(x)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[order[i]], nl.load(x[i]))
    return y


DIFFERENT = [
    counted, counted_by_turns, counted_in_a_list, counted_for_later,
    in_a_list, triangle,
    left_early, a_table, placed_apart, in_a_list_of_the_caller, kept_of_another_iteration,
    assigned_behind_the_loop, assigned_in_the_next_iteration,
]  # fmt: skip


@pytest.mark.parametrize("function", DIFFERENT, ids=lambda f: f.__name__)
def test_loops_with_different_iterations_are_traced_as_a_whole(function):
    found = same(Kernel(function), spec(12, 128, 8))
    rolled = {i.loops[0] for i in found.instructions if i.origin is not None}
    assert not rolled or function is triangle  # whose inner loop rolls where it is long


TRACED = Tally()


def counts_on(x):
    TRACED.note()
    return counted(x)


def fills_in_part(x):
    """To the last columns of each tile, what a mask left out is added."""
    TRACED.note()
    width = x.shape[2]
    filled, y = width - 3, like(x, (*x.shape[:2], width - 3))
    tiles = nl.zeros((x.shape[0], nl.par_dim(128), width), x.dtype)
    row, column = nl.mgrid[0:128, 0:width]
    for i in nl.affine_range(x.shape[0]):
        tiles[i, row, column] += nl.load(x[i, row, column], mask=column < filled)
    for i in nl.affine_range(x.shape[0]):
        nl.store(y[i], tiles[i, :, 0:filled])
    return y


@pytest.mark.parametrize("function", [counts_on, fills_in_part], ids=lambda f: f.__name__)
def test_a_loop_that_is_found_not_to_repeat_goes_on_as_a_whole(function):
    """It is told from the first iterations, so that the kernel is not traced once more."""
    TRACED.reset()
    rolled(Kernel(function), spec(12, 128, 8))
    assert TRACED.times == 1
    same(Kernel(function), spec(12, 128, 8))


@pytest.mark.parametrize(
    ("rows", "columns", "step", "turn", "bits"), [(16, 6, 1, 5, 1), (4, 12, 2, 4, 3)]
)
def test_counts_by_several_strands_are_whole(rows, columns, step, turn, bits):
    """What the iterations that are traced add up to grows evenly here, as if it were no count."""

    def kernel(x):
        n, y = 0, like(x)
        for i in nl.static_range(rows):
            for j in nl.static_range(columns):
                nl.store(y[i, j], nl.load(x[i, j]))
                if i * step % turn == j:
                    n += 1
                if j & bits:
                    n += 1
        nl.store(y[0, 0], nl.full((128, 8), n, x.dtype))
        return y

    same(Kernel(kernel), spec(rows, columns, 128, 8))


def test_a_program_id_decides():
    def kernel(x):
        i = nl.program_id(0)
        y = like(x)
        scale = 2.0 if i == 4 else 1.0
        for j in nl.affine_range(10):
            nl.store(y[i, j], nl.load(x[i, j]) * scale)
        return y

    found = same(Kernel(kernel)[12], spec(12, 10, 128, 8))
    assert {i.program for i in found.instructions if i.origin is not None} == set(range(12))


def test_a_program_id_decides_for_every_third_instance():
    def kernel(x):
        i, j = nl.program_id(0), nl.program_id(1)
        y = like(x)
        scale = 2.0 if i % 3 == 1 else 1.0
        nl.store(y[i, j], nl.load(x[i, j]) * scale)
        return y

    found = same(Kernel(kernel)[30, 4], spec(30, 4, 128, 8))
    assert sum(i.origin is None for i in found.instructions) < len(found.instructions) / 2


def test_only_the_loop_with_different_iterations_is_traced_as_a_whole():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(x.shape[0]):
            for j in nl.affine_range(x.shape[1]):
                tile = nl.load(x[i, j])
                nl.store(y[i, j], tile if i % 2 else tile * 2.0)
                ran.note()
        return y

    found = rolled(Kernel(kernel), spec(10, 100, 128, 8))
    assert len(found.instructions) == 2 * 1000 + 500
    assert ran.times < 10 * 5 + 2 * 5  # and what failed before


# -- errors are those of the whole trace --------------------------------------------------------


def outcome(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run()
            error = None
        except KernelError as e:
            error = type(e), str(e)
    return error, [str(w.message) for w in caught]


def far_dependence(x):
    """Each iteration reads what the fifth after it writes."""
    y = nl.ndarray((17, 128, 8), x.dtype, buffer=nl.hbm)
    z = like(x)
    for i in nl.affine_range(17):
        nl.store(y[i], nl.load(x[0]))
    for i in nl.affine_range(12):
        nl.store(z[i], nl.load(y[i + 5]))
        nl.store(y[i], nl.load(x[i]))
    return z


def overlapping_stores(x):
    y = nl.ndarray((128, 12 * 8 + 40), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(12):
        nl.store(y[:, i * 8 : i * 8 + 48], nl.load(x[:, 0:48]))
    return y


def half_written(x):
    y = like(x)
    for i in nl.affine_range(12):
        nl.store(y[i, :, 0:4], nl.load(x[i, :, 0:4]))
    return y


def half_written_under_a_mask(x):
    """What the mask leaves out was written before, in the rows of the first iterations only."""
    y = like(x)
    row, column = nl.mgrid[0:128, 0:8]
    for i in nl.affine_range(4):
        nl.store(y[i], nl.load(x[i]))
    for i in nl.affine_range(12):
        nl.store(y[i, row, column], nl.load(x[i]), mask=row + column < 100)
    return y


def outside(x):
    y = like(x)
    for i in nl.affine_range(12):
        nl.store(y[i], nl.load(x[i + 1]))
    return y


def race(x):
    y = like(x)
    i = nl.program_id(0)
    nl.store(y[i], nl.load(x[i]))
    nl.store(y[11 - i], nl.load(x[i]))
    return y


def unwritten(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
    z = like(x)
    for i in nl.affine_range(12):
        nl.store(y[i, :, 0:4], nl.load(x[i, :, 0:4]))
    for i in nl.affine_range(12):
        nl.store(z[i], nl.load(y[i]))
    return z


@pytest.mark.parametrize(
    ("kernel", "x", "error"),
    [
        (Kernel(far_dependence), spec(12, 128, 8), LoopError),
        (Kernel(overlapping_stores), spec(128, 64), LoopError),
        (Kernel(half_written), spec(12, 128, 8), None),
        (Kernel(half_written_under_a_mask), spec(12, 128, 8), None),
        (Kernel(outside), spec(12, 128, 8), OutOfBoundsError),
        (Kernel(race)[12], spec(12, 128, 8), RaceError),
        (Kernel(unwritten), spec(12, 128, 8), KernelError),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_errors_and_warnings_are_those_of_the_whole_trace(kernel, x, error):
    found = outcome(lambda: kernel.specialize([x], {}, rolled=True))
    kernel._cache.traces.clear()
    kernel._cache.rolled.clear()
    assert found == outcome(lambda: kernel.specialize([x], {}))
    if error is None:
        assert found[0] is None
        assert len(found[1]) == 1
    else:
        assert issubclass(found[0][0], error)


ROWS = [(7 * i * i) % 11 for i in range(12)]


@pytest.mark.parametrize(
    "number",
    [
        lambda i: ROWS[i],
        lambda i: dict(enumerate(ROWS))[i],
        lambda i: int(f"{i}") % 12,
        lambda i: int(str(i)) % 12,
        lambda i: int(i * 0.5),
        lambda i: int(0.5 * i),
        lambda i: int(i / 2),
        lambda i: int(12 / (i + 1)) - 1,
        lambda i: round(i, -1),
        lambda i: float(i).as_integer_ratio()[0],
        lambda i: i.bit_length(),
        lambda i: complex(i).real.as_integer_ratio()[0],
        lambda i: np.asarray(i).item(),
        lambda i: math.isqrt(i),
        lambda i: ROWS[i] if i in {3, 4} else i,
    ],
)
def test_a_loop_is_traced_as_a_whole_once_its_index_is_not_followed(number):
    """A lookup in one of the first iterations comes in time: nothing is traced twice."""
    ran = Tally()

    def kernel(x):
        ran.note()
        y = like(x)
        for i in nl.affine_range(12):
            nl.store(y[i], nl.load(x[number(i)]) * (2.0 if i % 2 else 3.0))
            for j in nl.affine_range(6):
                nl.store(y[i, j], nl.load(x[i, j]))
        return y

    def instances(x):
        ran.note()
        y, i = like(x), nl.program_id(1)
        nl.store(y[i], nl.load(x[number(i)]))
        return y

    x = spec(12, 128, 8)
    rolled(Kernel(kernel), x)
    assert ran.times == 1
    found = same(Kernel(kernel), x)
    assert {len(i.loops) for i in found.instructions if i.origin is not None} <= {2}
    ran.reset()
    rolled(Kernel(instances)[1, 12], x)
    assert ran.times == 12
    same(Kernel(instances)[1, 12], x)


@pytest.mark.parametrize("outer", [nl.affine_range, nl.static_range, range])
@pytest.mark.parametrize(
    "number",
    [
        lambda i, j: ROWS[j],
        lambda i, j: ROWS[i],
        lambda i, j: ROWS[(i + j) % 12],
        lambda i, j: ROWS[j] if i == 5 else j,
        lambda i, j: ROWS[j] if j == 7 else j,
        lambda i, j: ROWS[i] if j == 7 else i,
        lambda i, j: ROWS[i] if i > j else i,
    ],
)
def test_indices_of_several_loops_are_not_followed(number, outer):
    def kernel(x):
        y = like(x)
        for i in outer(12):
            for j in nl.affine_range(12):
                tile = nl.load(x[i, number(i, j)])
                nl.store(y[i, j], tile * 2.0 if j < 3 else tile)
            nl.store(y[i, 0], nl.load(x[i, ROWS[j]]))
        return y

    same(Kernel(kernel), spec(12, 12, 128, 8))


def from_a_table_late(x):
    y = like(x)
    for i in nl.affine_range(12):
        nl.store(y[i], nl.load(x[ROWS[i] if i == 7 else i]))
    return y


def by_instance_from_a_table_late(x):
    y, i = like(x), nl.program_id(1)
    nl.store(y[i], nl.load(x[ROWS[i] if i == 7 else i]))
    return y


@pytest.mark.parametrize(
    ("kernel", "where"),
    [
        (Kernel(from_a_table_late), "all iterations of the loop at test_rolling.py"),
        (Kernel(by_instance_from_a_table_late)[1, 12], "all iterations of grid axis 1"),
    ],
)
def test_why_a_loop_is_traced_again_is_logged(caplog, kernel, where):
    with caplog.at_level("INFO", "nkisim"):
        kernel.specialize([spec(12, 128, 8)], {}, rolled=True)
    assert f"{kernel.__name__} is traced again, with {where}" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_fault_of_the_rolled_trace_is_logged_and_changes_nothing(caplog, monkeypatch):
    def broken(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr("nkisim.trace.rolling.unroll", broken)
    args = [spec(512, 512)], {}
    with caplog.at_level("INFO", "nkisim"):
        found = Kernel(columns).specialize(*args, rolled=True)
    assert "every iteration of columns is traced: a fault" in caplog.text
    assert "Traceback" in caplog.text
    whole = Kernel(columns).specialize(*args)
    assert list(stream(found.program.trace)) == list(stream(whole.program.trace))


@settings(max_examples=40, deadline=None)
@example(write=(1, 0, 0), read=(5, 0, 4), inner=nl.affine_range)  # moves faster than it is written
@given(
    write=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 8)),
    read=st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 8)),
    inner=st.sampled_from([nl.affine_range, nl.sequential_range]),
)
def test_dependences_between_iterations_are_found_far_apart(write, read, inner):
    """Iterations of two loops write a row, at an address that grows evenly, and read another."""

    def kernel(x):
        y = like(x)
        rows = nl.zeros((1, 80), x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(9):
            for j in inner(7):
                (a, b, c), (d, e, f) = write, read
                rows[:, a * i + b * j + c] = nl.load(x[0:1, 0])
                nl.store(y[0:1, 7 * i + j], rows[:, d * i + e * j + f])
        return y

    rolled_kernel, whole = Kernel(kernel), Kernel(kernel)
    found = outcome(lambda: rolled_kernel.specialize([spec(1, 64)], {}, rolled=True))
    assert found == outcome(lambda: whole.specialize([spec(1, 64)], {}))


def test_the_check_of_loops_leaves_out_iterations_between_others():
    """Of a loop that is traced in part, and of one inside it that is known, the last copy stays."""

    def kernel(x):
        y = like(x)
        tiles = nl.ndarray((9, 8, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(9):
            for j in nl.affine_range(8):
                tiles[i, j] = nl.load(x[i, j])
            for j in nl.affine_range(8):
                nl.store(y[i, j], tiles[i, j])
        return y

    trace = rolled(Kernel(kernel), spec(9, 8, 128, 8))
    number = next(b.number for b in trace.buffers if b.shape == (9, 8, 128, 8) and b.par_axis)
    loops = LoopUses(trace, set(range(len(trace.loops))))
    found = loops.telling()[number]
    assert found.left_out
    assert {t.offsets[0] for _, t, _ in found.uses} == {0, 1, 2, 6, 7, 8}
    assert {t.offsets[1] for _, t, _ in found.uses if t.offsets[0] == 0} == {0, 1, 2, 5, 6, 7}
    assert {t.offsets[1] for _, t, _ in found.uses if t.offsets[0] == 6} == {0, 7}
    assert set(found.slopes.values()) == {(1, 0, 0, 0), (0, 1, 0, 0)}
    everything = loops.whole([number])[number]
    assert len(everything.uses) == 2 * 72
    assert not everything.left_out


def test_python_errors_of_missing_iterations_do_not_show():
    def kernel(x):
        rows, y = {}, like(x)
        for i in nl.affine_range(12):
            rows[int(i)] = x[i]
        for i in nl.static_range(12):
            nl.store(y[i], nl.load(rows[i]))
        return y

    assert nkisim.profile(kernel, spec(12, 128, 8)).instructions == 24


def test_what_cannot_be_rolled_is_traced_as_a_whole():
    """A dense mask leaves flags that have to be looked at element by element, in every loop."""

    def kernel(x):
        y = like(x)
        p, f = nl.mgrid[0:128, 0:8]
        for i in nl.affine_range(12):
            tile = nl.load(x[i, p, f])
            nl.store(y[i, p, f], tile, mask=p + f < 100)
        return y

    with pytest.warns(NkiWarning, match="never written") as caught:
        found = same(Kernel(kernel), spec(12, 128, 8))
    assert found.copies > len(found.buffers)
    assert len(caught) == 2  # one for each trace


def test_a_warning_is_given_once():
    with pytest.warns(NkiWarning, match="never written") as caught:
        nkisim.profile(half_written, spec(12, 128, 8))
    assert len(caught) == 1

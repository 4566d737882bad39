"""What tiles placed by hand wait for in time: those that share bytes with them, and no others."""

import itertools

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.memory import Buffer, Space
from nkisim.ir.parts import Patterns

P, ROW = 128, 256  # fp32 elements of a tile: 1 KiB a partition
STEPS = 24


def placed(address):
    return nl.ndarray((P, ROW), nl.float32, buffer=nl.sbuf, address=(0, address))


def chains(bridge, second=ROW * 4):
    """Two chains of instructions, each in a tile of its own, on two engines. Before, a third tile
    was used, at the address `bridge`."""

    def kernel(x):
        out = nl.ndarray((3, P, ROW), x.dtype, buffer=nl.shared_hbm)
        before = placed(bridge)
        nisa.dma_copy(before, x)
        nisa.dma_copy(out[2], before)
        tiles = placed(0), placed(second)
        engines = nisa.vector_engine, nisa.scalar_engine
        for tile in tiles:
            nisa.dma_copy(tile, x)
        for _ in range(STEPS):
            for tile, engine in zip(tiles, engines, strict=True):
                nisa.tensor_scalar(tile, tile, nl.add, 1.0, engine=engine)
        for k, tile in enumerate(tiles):
            nisa.dma_copy(out[k], tile)
        return out

    with nkisim.checks(placement="off", output="off"):
        return nkisim.profile(nki.jit(kernel), nkisim.TensorSpec((P, ROW), np.dtype(np.float32)))


def test_neighbours_of_a_tile_that_is_gone_do_not_wait_for_each_other():
    """The tile before was in half of the bytes of each."""
    across, apart = chains(ROW * 2), chains(ROW * 16)
    # Only their loads wait, for the store before: 4 us at most.
    assert apart.body_us <= across.body_us < apart.body_us + 4
    shared = chains(ROW * 16, second=ROW * 2)  # these two do wait
    assert shared.body_us > apart.body_us + 6


def test_results_whose_places_an_earlier_tile_covered_both():
    """The instruction writes two tiles in what was one: it does not wait for itself."""

    def kernel(x):
        out = nl.ndarray((P, 1), nl.float32, buffer=nl.shared_hbm)
        before, data = placed(512), placed(8192)
        nisa.memset(before, 1.0)
        nisa.tensor_copy(data, before)
        squares = placed(0)
        total = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf, address=(0, ROW * 4))
        nisa.activation_reduce(squares, nl.square, data, nl.add, total)
        nisa.dma_copy(out, total)
        return out

    x = nkisim.TensorSpec((P, ROW), np.dtype(np.float32))
    assert nkisim.profile(nki.jit(kernel), x).body_us > 0


@pytest.mark.parametrize("address", [None, (0, 0)])
def test_halves_of_rows_are_apart(address):
    """The free axes of a tile are one in memory: a half of each row is no range of it."""

    def kernel(x, second):
        out = nl.ndarray((P, 8, 64), x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((P, 8, 64), x.dtype, buffer=nl.sbuf, address=address)
        nisa.dma_copy(tile, x)
        halves = tile[:, :, 0:32], tile[:, :, second : second + 32]
        for _ in range(STEPS):
            for half, engine in zip(halves, (nisa.vector_engine, nisa.scalar_engine), strict=True):
                nisa.tensor_scalar(half, half, nl.add, 1.0, engine=engine)
        nisa.dma_copy(out, tile)
        return out

    x = nkisim.TensorSpec((P, 8, 64), np.dtype(np.float32))
    apart, met, same = (nkisim.profile(nki.jit(kernel), x, at).body_us for at in (32, 31, 0))
    assert apart < met - 1
    assert met == same


def views(rng, base):
    """A random view of some base axes: strided, shifted, transposed, or one that repeats."""
    shape = tuple(int(n) for n in rng.integers(1, 4, size=3))
    coefs = []
    for axis in range(len(base)):
        row = [0, 0, 0]
        for d in range(3):
            # The first base axis has view axis 0 to itself.
            if (axis == 0) == (d == 0):
                row[d] = int(rng.integers(0, 4))
        coefs.append(tuple(row))
    form = Form.of(shape, base, tuple(coefs))
    form_bounds = form.bounds((0, 0, 0)[: len(base)])
    room = [n - high for n, (_, high) in zip(base, form_bounds, strict=True)]
    if min(room) < 1:
        return None
    return form, tuple(int(rng.integers(0, n)) for n in room)


def elements(form, offsets):
    rows = np.array(form.coefs)
    return {
        tuple(np.array(offsets) + rows @ np.array(index))
        for index in itertools.product(*map(range, form.shape))
    }


@pytest.mark.parametrize("base", [(4, 30), (3, 5, 7), (5, 1)])
def test_parts_meet_as_their_elements_do(base):
    rng = np.random.default_rng(sum(base))
    whole = AccessPattern(Buffer(0, base, np.dtype(np.float32), Space.SBUF))
    found = [v for v in (views(rng, base) for _ in range(600)) if v is not None][:60]
    assert len(found) > 20
    patterns = Patterns()
    parts = [whole.view_of(*v) for v in found]
    sets = [elements(*v) for v in found]
    apart = 0
    for (a, mine), (b, other) in itertools.product(zip(parts, sets, strict=True), repeat=2):
        got = patterns.overlap(a, b)
        if mine & other:
            assert got is not None  # never missed
            over, under = got
            assert not over or mine >= other
            assert not under or other >= mine
        else:
            apart += got is None
    assert apart > 100

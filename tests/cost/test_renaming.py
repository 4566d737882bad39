"""A buffer that is filled whole in each iteration costs no more before the loop than inside."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkisim.machine import GEN2, GEN3

P = 128


@nki.jit
def rows_of(x, w, inside, by_dma):
    """Products of rows with weights; the row's buffer is made before the loop or inside of it."""
    out = nl.ndarray((x.shape[0], P, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    weights = nl.load(w)
    row = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
    for r in nl.sequential_range(x.shape[0]):
        if inside:
            row = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
        if by_dma:
            nisa.dma_copy(src=x[r], dst=row)
        else:
            row[...] = nl.exp(nl.load(x[r]))
        nl.store(out[r], nl.copy(nisa.nc_matmul(weights, row), dtype=x.dtype))
    return out


@settings(max_examples=20)
@given(
    st.integers(1, 20),
    st.sampled_from([1, 33, 512]),
    st.booleans(),
    st.sampled_from([np.float32, np.float16]),
    st.sampled_from([GEN2, GEN3]),
)
def test_where_the_buffer_is_made_is_no_matter(rows, columns, by_dma, dtype, machine):
    x, w = spec(rows, P, columns, dtype=dtype), spec(P, P, dtype=dtype)
    before, inside = (
        nkisim.profile(rows_of.on(machine), x, w, k, by_dma).latency_us for k in (False, True)
    )
    assert before == pytest.approx(inside, rel=1e-6)


def times_of(fill):
    """Body in microseconds of 16 loads into one buffer, each of which is stored."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
        for r in nl.sequential_range(x.shape[0]):
            fill(tile, x[r])
            nl.store(out[r], tile)
        return out

    return nkisim.profile(kernel, spec(16, P, 512)).body_us


def test_what_keeps_a_part_is_the_same_tile():
    whole = times_of(lambda tile, x: nisa.dma_copy(src=x, dst=tile))

    def in_place(tile, x):
        tile[...] = nl.load(x)
        tile[...] = nl.multiply(tile, 2.0)

    def in_halves(tile, x):
        tile[:, :256] = nl.load(x[:, :256])
        tile[:, 256:] = nl.load(x[:, 256:])

    assert times_of(in_place) < 1.5 * whole
    assert times_of(in_halves) > 1.5 * whole


def test_tiles_that_the_kernel_places_stay_where_they_are():
    @nki.jit
    def kernel(x, buffers):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        place = ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(buffers,))
        tiles = nl.ndarray((x.shape[0], nl.par_dim(P), x.shape[2]), x.dtype, buffer=place)
        for r in nl.sequential_range(x.shape[0]):
            tiles[r] = nl.load(x[r])
            nl.store(out[r], tiles[r])
        return out

    one, four = (nkisim.profile(kernel, spec(16, P, 512), n).body_us for n in (1, 4))
    assert one > 1.5 * four


def test_rows_of_one_partition_take_turns():
    """Adds in chunks of one element take 1.07 us each on trn1, as many as there are."""

    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for m in nl.affine_range(x.shape[0] // rows):
            part = nl.ds(m * rows, rows)
            nl.store(out[part], nl.add(nl.load(x[part]), 1.0))
        return out

    row, two = (nkisim.profile(kernel, spec(64 * n, 8), n).body_us / 64 for n in (1, 2))
    assert row == pytest.approx(1.07, rel=0.1)
    assert two < row / 2

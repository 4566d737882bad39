"""Every instruction that moves data, through drawn access patterns, types and masks, against
NumPy's indexing. What the mask or the pattern leaves out keeps its old value."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from drawn_operands import (
    FLOATS,
    close,
    indices,
    masks,
    numbers,
    patterns,
    run,
    shapes,
    some,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
types = st.sampled_from(FLOATS)
flat = shapes.filter(lambda shape: len(shape) == 2)


@given(data=st.data(), shape=shapes, dtypes=st.tuples(types, types))
@some
def test_load(data, shape, dtypes):
    source, to = data.draw(patterns(shape)), data.draw(patterns(shape))
    mask = data.draw(masks(shape))
    x, destination = numbers(source.base, dtypes[0]), numbers(to.base, dtypes[1], 1)

    @nki.jit
    def kernel(x, destination):
        out = nl.ndarray(destination.shape, dtype=destination.dtype, buffer=nl.shared_hbm)
        tile = nl.load(destination)
        loaded = nl.load(source.of_tile(x), mask=mask.of_kernel(shape), dtype=tile.dtype)
        index = indices(shape)
        along = zip(to.starts, to.steps, to.order, strict=True)
        tile[tuple(a + s * index[axis] for a, s, axis in along)] = loaded
        nl.store(out, tile)
        return out

    wanted = written(destination, to, mask, source.of_array(x).astype(np.float64))
    close(kernel(x, destination), wanted)


@given(data=st.data(), shape=shapes, dtypes=st.tuples(types, types))
@some
def test_store(data, shape, dtypes):
    source, to = data.draw(patterns(shape)), data.draw(patterns(shape))
    mask = data.draw(masks(shape))
    x, destination = numbers(source.base, dtypes[0]), numbers(to.base, dtypes[1], 1)

    @nki.jit
    def kernel(x, destination):
        out = nl.ndarray(destination.shape, dtype=destination.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=destination)
        tile = nl.load(x)
        nl.store(to.of_tile(out), source.of_tile(tile), mask=mask.of_kernel(shape))
        return out

    wanted = written(destination, to, mask, source.of_array(x).astype(np.float64))
    close(kernel(x, destination), wanted)


@pytest.mark.parametrize("on_chip", [(False, False), (True, False), (False, True), (True, True)])
@given(data=st.data(), shape=shapes, dtypes=st.tuples(types, types), add=st.booleans())
@some
def test_dma_copy(on_chip, data, shape, dtypes, add):
    source, to = data.draw(patterns(shape)), data.draw(patterns(shape))
    mask = data.draw(masks(shape))
    x, destination = numbers(source.base, dtypes[0]), numbers(to.base, dtypes[1], 1)

    @nki.jit
    def kernel(x, destination):
        out = nl.ndarray(destination.shape, dtype=destination.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=destination)
        target = nl.load(destination) if on_chip[1] else out
        nisa.dma_copy(
            dst=to.of_tile(target),
            src=source.of_tile(nl.load(x) if on_chip[0] else x),
            mask=mask.of_kernel(shape),
            dst_rmw_op=np.add if add else None,
        )
        if on_chip[1]:
            nl.store(out, target)
        return out

    values = source.of_array(x).astype(np.float64)
    if add:
        values = values + to.of_array(destination).astype(np.float64)
    close(kernel(x, destination), written(destination, to, mask, values))


@given(data=st.data(), shape=flat, dtypes=st.tuples(types, types))
@some
def test_load_transpose2d(data, shape, dtypes):
    source = data.draw(patterns(shape))
    x = numbers(source.base, dtypes[0])

    @nki.jit
    def kernel(x):
        out = nl.ndarray(shape[::-1], dtype=dtypes[1], buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(source.of_tile(x), dtype=dtypes[1]))
        return out

    close(kernel(x), source.of_array(x).T.astype(dtypes[1]))


@pytest.mark.parametrize("engine", ["vector", "tensor"])
@given(data=st.data(), shape=flat, dtype=types)
@some
def test_nc_transpose(engine, data, shape, dtype):
    source = data.draw(patterns(shape))
    x = numbers(source.base, dtype)
    if engine == "vector":  # squares of 32 x 32 only
        shape = min(shape[0], 32), min(shape[1], 32)
        source = data.draw(patterns(shape))
        x = numbers(source.base, dtype)
    where = getattr(nisa, f"{engine}_engine")

    def body(tile, t):
        tile[...] = nisa.nc_transpose(source.of_tile(t), engine=where)

    got = run(body, np.zeros(shape[::-1], dtype), x)
    np.testing.assert_array_equal(got, source.of_array(x).T)


@given(data=st.data(), shape=flat, rows=st.integers(1, 20), seed=st.integers(0, 99))
@some
def test_gather(data, shape, rows, seed):
    columns = shape[1]
    x = numbers((rows, columns + 3), np.float32)
    index = np.random.default_rng(seed).integers(0, rows, (shape[0], 1)).astype(np.int32)
    destination = numbers(shape, np.float32, 1)
    mask = data.draw(masks(shape))

    @nki.jit
    def kernel(x, index, destination):
        out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, at = nl.load(destination), nl.load(index)
        _, i_f = indices(shape)
        tile[...] = nl.load(x[at, 2 + i_f], mask=mask.of_kernel(shape))
        nl.store(out, tile)
        return out

    wanted = np.where(mask.of_array(shape), x[index[:, 0], 2 : 2 + columns], destination)
    np.testing.assert_array_equal(kernel(x, index, destination), wanted)


@given(data=st.data(), shape=flat, spare=st.integers(0, 9), seed=st.integers(0, 99))
@some
def test_scatter(data, shape, spare, seed):
    rows = shape[0] + spare
    x, destination = numbers(shape, np.float32), numbers((rows, shape[1]), np.float32, 1)
    places = np.random.default_rng(seed).permutation(rows)[: shape[0], None].astype(np.int32)
    mask = data.draw(masks(shape))

    @nki.jit
    def kernel(x, places, destination):
        out = nl.ndarray(destination.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=destination)
        at = nl.load(places)
        _, i_f = indices(shape)
        nl.store(out[at, i_f], nl.load(x), mask=mask.of_kernel(shape))
        return out

    wanted = destination.copy()
    keep = mask.of_array(shape)
    for p, place in enumerate(places[:, 0]):
        wanted[place, keep[p]] = x[p, keep[p]]
    np.testing.assert_array_equal(kernel(x, places, destination), wanted)


@given(data=st.data(), shape=shapes, dtype=types)
@some
def test_tensor_copy_from_psum(data, shape, dtype):
    source, to = data.draw(patterns(shape)), data.draw(patterns(shape))
    mask = data.draw(masks(shape))
    x, destination = numbers(source.base, np.float32), numbers(to.base, dtype, 1)

    def body(tile, t):
        psum = nl.ndarray(t.shape, dtype=nl.float32, buffer=nl.psum)
        psum[...] = nl.copy(t)
        index = indices(shape)
        along = zip(to.starts, to.steps, to.order, strict=True)
        copied = nisa.tensor_copy(
            source.of_tile(psum), mask=mask.of_kernel(shape), dtype=tile.dtype
        )
        tile[tuple(a + s * index[axis] for a, s, axis in along)] = copied

    close(run(body, destination, x), written(destination, to, mask, source.of_array(x)))

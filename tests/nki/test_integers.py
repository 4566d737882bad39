"""Integers on the engines, in `import nki`: fp32 inside and the nearest number that the output
holds, but for 32-bit integers on GpSimd (nisa.tensor_tensor and the common fields, SDK 2.32)."""

import neuronxcc.nki as nki_before
import neuronxcc.nki.language as nl_before
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import DTypeError

SMALL = ("int8", "uint8", "int16", "uint16")
OPS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}


def values(dtype, seed):
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, (3, 40), np.int64, endpoint=True)
    x[0, :2] = info.min, info.max
    return x.astype(dtype)


def nearest(wide, dtype):
    """An fp32 result in an integer type."""
    info = np.iinfo(dtype)
    return np.clip(np.rint(wide.astype(np.float64)), info.min, info.max).astype(dtype)


def run(kernel, *arrays):
    return nki.simulate(kernel)(*arrays)


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("engine", ["unknown", "vector", "gpsimd"])
@pytest.mark.parametrize("to", ["int8", "uint8", "int32", "uint16"])
@pytest.mark.parametrize(("a", "b"), [(t, t) for t in SMALL] + [("int8", "uint16")])
def test_narrow_integers_saturate_on_either_engine(a, b, to, engine):
    x, y = values(a, 1), values(b, 2)

    def kernel(x, y):
        outs = []
        for op in OPS:
            dst = nl.ndarray(x.shape, to)
            where = getattr(nisa.engine, engine)
            nisa.tensor_tensor(dst, nl.load(x), nl.load(y), getattr(nl, op), engine=where)
            outs.append(stored(dst))
        return tuple(outs)

    for found, fn in zip(run(kernel, x, y), OPS.values(), strict=True):
        wide = fn(x.astype(np.float32), y.astype(np.float32))
        np.testing.assert_array_equal(found, nearest(wide, to), err_msg=fn.__name__)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("where", ["gpsimd", "unknown", "vector", "psum", "narrower", "scalar"])
def test_32_bits_are_exact_where_gpsimd_computes_them(dtype, where):
    """The Vector Engine has fp32 alone: asked for, needed because GpSimd does not reach PSUM, or
    because one tile is no 32-bit integer. tensor_scalar is fp32 always."""
    x, y = values(dtype, 3), values(dtype, 4)
    to = "int16" if where == "narrower" else dtype

    def kernel(x, y):
        outs = []
        for op in OPS:
            a, b, dst = nl.load(x), nl.load(y), nl.ndarray(x.shape, to)
            if where == "psum":
                moved = nl.ndarray(x.shape, dtype, buffer=nl.psum)
                nisa.tensor_copy(moved, a)
                a = moved
            if where == "scalar":
                nisa.tensor_scalar(dst, a, getattr(nl, op), 5.0)
            else:
                engine = getattr(nisa.engine, where, nisa.engine.unknown)
                nisa.tensor_tensor(dst, a, b, getattr(nl, op), engine=engine)
            outs.append(stored(dst))
        return tuple(outs)

    other = np.float32(5) if where == "scalar" else y
    for found, fn in zip(run(kernel, x, y), OPS.values(), strict=True):
        if where in ("gpsimd", "unknown"):
            want = fn(x.astype(np.int64), y.astype(np.int64)).astype(dtype)
        else:
            with np.errstate(over="ignore"):
                wide = fn(x.astype(np.float32), np.float32(other))
            want = nearest(wide, to)
        np.testing.assert_array_equal(found, want, err_msg=fn.__name__)


def test_comparisons_of_32_bits_are_exact_on_gpsimd_only():
    x = np.array([[2**24, 2**24 + 1, -5]], np.int32)
    y = np.array([[2**24 + 1, 2**24 + 1, -5]], np.int32)

    def kernel(x, y):
        outs = []
        for engine in (nisa.engine.gpsimd, nisa.engine.vector):
            dst = nl.ndarray(x.shape, nl.int32)
            nisa.tensor_tensor(dst, nl.load(x), nl.load(y), nl.equal, engine=engine)
            outs.append(stored(dst))
        return tuple(outs)

    exact, rounded = run(kernel, x, y)
    assert exact.tolist() == [[0, 1, 1]]
    assert rounded.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("to", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("a", ["int32", "int16", "float32"])
def test_whatever_converts_takes_the_nearest_number(a, to):
    """DMA and every copy: by way of fp32 into another type, bit by bit into the same."""
    x = values("int32", 5).astype(a) if a == "int32" else values("int16", 5).astype(a)

    def kernel(x):
        tile = nl.load(x)
        copied, loaded = nl.ndarray(x.shape, to), nl.ndarray(x.shape, to)
        nisa.dma_copy(loaded, x)
        nisa.tensor_copy(copied, tile)
        largest = nl.ndarray((3, 1), to)
        nisa.tensor_reduce(largest, nl.maximum, tile, 1)
        total = nl.ndarray((3, 1), to)
        nisa.tensor_reduce(total, nl.add, tile, 1)
        return tuple(map(stored, (loaded, copied, largest, total)))

    wide = x.astype(np.float32)
    want = x if a == to else nearest(wide, to)
    loaded, copied, largest, total = run(kernel, x)
    np.testing.assert_array_equal(loaded, want)
    np.testing.assert_array_equal(copied, want)
    np.testing.assert_array_equal(largest, nearest(wide.max(1, keepdims=True), to))
    np.testing.assert_array_equal(total, nearest(wide.sum(1, keepdims=True), to))


def fill_nki(dtype, value):
    @nki.jit
    def kernel():
        tile = nl.ndarray((2, 2), dtype=dtype, buffer=nl.sbuf)
        nisa.memset(tile, value)
        return stored(tile)

    return kernel


def full_nki(dtype, value):
    @nki.jit
    def kernel():
        return stored(nl.full((2, 2), value, dtype, nl.sbuf))

    return kernel


def full_before(dtype, value):
    @nki_before.jit
    def kernel():
        out = nl_before.ndarray((2, 2), dtype=dtype, buffer=nl_before.shared_hbm)
        nl_before.store(out, nl_before.full((2, 2), value, dtype, buffer=nl_before.sbuf))
        return out

    return kernel


@pytest.mark.parametrize("make", [fill_nki, full_nki, full_before])
@pytest.mark.parametrize("dtype", [*SMALL, "int32", "uint32"])
def test_a_constant_gives_its_bits_or_is_refused(make, dtype):
    bits = np.iinfo(dtype).bits
    for value in (0, -1, 2 ** (bits - 1), 2**bits - 1, -(2 ** (bits - 1))):
        want = np.array(value % 2**bits, f"uint{bits}").view(dtype)
        assert (make(dtype, value)() == want).all()
    for value in (2**bits, -(2 ** (bits - 1)) - 1, 2**40):
        with pytest.raises(DTypeError, match=r"(?s)bits.*fix:"):
            make(dtype, value)()


def test_a_fraction_is_not_cut_off_in_an_integer_type():
    for make in (fill_nki, full_nki):
        assert (make("int32", 3.0)() == 3).all()
        with pytest.raises(DTypeError, match="integer"):
            make("int32", 3.5)()

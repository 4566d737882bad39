"""Fixes that messages of `import nki` name, followed: the wrong form is refused, the fix runs."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import DTypeError, KernelError

X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)


def of(body, *arrays):
    """`body(dst, *tiles)` in a kernel: what it leaves in dst, a tile like the first array."""

    @nki.jit
    def kernel(*tensors):
        tiles = []
        for given in tensors:
            tile = nl.ndarray(given.shape, dtype=given.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=given)
            tiles.append(tile)
        first = tensors[0]
        out = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.shared_hbm)
        dst = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.sbuf)
        body(dst, *tiles)
        nisa.dma_copy(dst=out, src=dst)
        return out

    return kernel(*arrays)


def part(index):
    def body(dst, x):
        nisa.tensor_copy(dst=dst, src=x)
        nisa.tensor_copy(dst=dst[index], src=x[index])

    return body


@pytest.mark.parametrize(
    ("wrong", "says", "fixed"),
    [
        (np.s_[:, 8:2], "write 2:8", np.s_[:, 2:8]),
        (np.s_[:, 20:30], "begin in 0..15", np.s_[:, 15:16]),
        (np.s_[:, -99:4], "begin in 0..15", np.s_[:, 0:4]),
        (np.s_[:, 4:30], r"min\(30, 16\) for the end", np.s_[:, 4 : min(30, 16)]),
        (np.s_[..., ...], r"write `...` once, and `:`", np.s_[..., :]),
        (np.s_[:, 0:2, 0:2], "give each axis one index", np.s_[:, 0:2]),
        (np.s_[:, None, :], r"use t.expand_dim\(dim\)", np.s_[:, :]),
    ],
)
def test_an_index_as_its_fix_says(wrong, says, fixed):
    with pytest.raises(KernelError, match=says):
        of(part(wrong), X)
    np.testing.assert_array_equal(of(part(fixed), X), X)


@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (64, 1), (128, 2)])
def test_an_operand_of_a_column(shape):
    says = {(1, 1): "load the row into each partition", (128, 2): r"t\[:, 0:1\]"}
    says = says.get(shape, "give it 128 partitions")
    with pytest.raises(KernelError, match=says):
        of(lambda dst, x, y: nisa.tensor_scalar(dst, x, nl.add, y), X, np.ones(shape, np.float32))


def test_a_number_in_each_partition():
    @nki.jit
    def kernel(x, number):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        t = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=number.ap([[0, 128], [1, 1]]))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=t)
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(kernel(X, np.full((1, 1), 3, np.float32)), X + 3)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


@pytest.mark.parametrize("second", INTEGERS)
@pytest.mark.parametrize("first", INTEGERS)
def test_bits_of_two_integer_types(first, second):
    """Those of one size are bits alike; a narrower type is widened, where one type holds both."""
    x = (np.arange(128 * 16).reshape(128, 16) % 251 - 97).astype(first)
    y = (np.arange(128 * 16).reshape(128, 16) % 83 - 21).astype(second)

    def xor(dst, a, b):
        nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=nl.bitwise_xor)

    if x.itemsize != y.itemsize and np.promote_types(first, second) == np.int64:
        with pytest.raises(DTypeError, match="no integer type holds both"):
            of(xor, x, y)
    else:
        wide = x.astype(np.int64) ^ y.astype(np.int64)
        np.testing.assert_array_equal(of(xor, x, y), wide.astype(first))


@pytest.mark.parametrize(("number", "fits"), [(2**32 - 1, True), (2**32, False), (-(2**31), True)])
def test_a_number_for_bits_has_32_of_them(number, fits):
    x = np.full((4, 4), -5, np.int32)

    def masked(dst, a):
        nisa.tensor_scalar(dst=dst, data=a, op0=nl.bitwise_and, operand0=number)

    if fits:
        np.testing.assert_array_equal(of(masked, x), (x.astype(np.int64) & number).astype(np.int32))
    else:
        with pytest.raises(DTypeError, match="value 4294967296 in int32"):
            of(masked, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_bits_of_floats_are_viewed_in_integers_of_their_size(dtype):
    x = np.asarray(X, dtype)
    same = f"uint{8 * x.itemsize}"

    def negated(dst, a, view=lambda t: t):
        nisa.tensor_scalar(view(dst), view(a), nl.bitwise_xor, 1 << (8 * x.itemsize - 1))

    with pytest.raises(DTypeError, match=rf"t.view\(nl.{same}\)"):
        of(negated, x)
    found = of(lambda dst, a: negated(dst, a, lambda t: t.view(getattr(nl, same))), x)
    np.testing.assert_array_equal(found, -x)


def test_a_size_of_run_time_is_refused_by_name():
    def body(dst, x):
        nisa.tensor_copy(dst, x[:, nl.ds(0, nisa.register_alloc(3))])

    with pytest.raises(KernelError, match=r"nl\.ds with a size that is known only at run time"):
        of(body, X)


@pytest.mark.parametrize(
    ("chip", "engine", "says"),
    [
        ("trn1", "scalar", "fix:  pass no engine"),
        ("trn2", "tensor", "fix:  pass no engine"),
        ("trn2", "scalar", "fix:  pass dge_mode=nisa.dge_mode.hwdge"),
    ],
)
def test_an_engine_of_a_dma(monkeypatch, chip, engine, says):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)
    with pytest.raises(KernelError, match=says):
        of(lambda dst, x: nisa.dma_copy(dst, x, engine=getattr(nisa.engine, engine)), X)
    if chip == "trn2" and engine == "scalar":
        mode = nisa.dge_mode.hwdge
        found = of(
            lambda dst, x: nisa.dma_copy(dst, x, engine=nisa.engine.scalar, dge_mode=mode), X
        )
        np.testing.assert_array_equal(found, X)


def test_a_transpose_keeps_the_type_that_its_fix_names(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    def turned_twice(dst, x, dtype):
        turned = nl.ndarray((16, 128), dtype=dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=x)
        rows = nl.ndarray((16, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=rows, src=turned)
        again = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=again, data=rows)
        nisa.tensor_copy(dst=dst, src=again)

    with pytest.raises(DTypeError, match=r"declare dst with dtype=nl\.float32"):
        of(lambda dst, x: turned_twice(dst, x, nl.bfloat16), X)
    np.testing.assert_array_equal(of(lambda dst, x: turned_twice(dst, x, nl.float32), X), X)

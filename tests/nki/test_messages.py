"""What messages say of kernels of `import nki`: their ways, not those of the older dialect."""

import re
import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import KernelError, NkiWarning

X = np.ones((100, 8), np.float32)


@nki.jit
def left_out(x):
    """Reads and writes the first 64 rows."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, x.shape[1]), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[0:64])
    nisa.dma_copy(out[0:64], tile)
    return out


@nki.jit
def mended(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in range((x.shape[0] + 63) // 64):
        n = min(64, x.shape[0] - 64 * i)
        tile = nl.ndarray((n, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[64 * i : 64 * i + n])
        nisa.dma_copy(out[64 * i : 64 * i + n], tile)
    return out


@nki.jit
def unwritten(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile[0:64], x[0:64])
    nisa.dma_copy(out, tile)
    return out


def test_a_tail_that_is_left_out_is_told_without_masks():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        left_out(X)
    told = [str(w.message) for w in shown if w.category is NkiWarning]
    assert {t.split(" of ")[0] for t in told} == {"288"}
    assert len(told) == 2
    assert any("never read" in t and "min(size, n - start)" in t for t in told)
    assert any("never written" in t and "the slices that are written" in t for t in told)
    assert "mask" not in " ".join(told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(mended(X), X)


def test_a_read_of_what_nothing_wrote_is_told_without_masks():
    with pytest.raises(KernelError, match="nothing wrote") as caught:
        unwritten(X)
    assert "slice what was written" in caught.value.fix
    assert "mask" not in str(caught.value)


def using(body):
    """A kernel that does something with an argument, and copies it."""

    @nki.jit
    def kernel(x, *more):
        tile = nl.load(x[0:4])
        body(tile, x, *more)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    return kernel


def at_row(x, **offset):
    nisa.dma_copy(nl.zeros((4, 8), x.dtype, buffer=nl.sbuf), x.ap([[8, 4], [1, 8]], **offset))


@pytest.mark.parametrize(("body", "fix"), [
    (lambda t, x: nl.sqrt(64.0), r"math.sqrt"),
    (lambda t, x: nl.exp(2), r"math.exp"),
    (lambda t, x: nl.rsqrt(np.float32(3)), r"1 / math.sqrt"),
    (lambda t, x: nl.maximum(2.0, 3.0), r"in Python"),
    (lambda t, x: nisa.tensor_copy(target=t, origin=t), r"its parameters, dst, src"),
    (lambda t, x: nl.sqrt(X), r"as an argument"),
    (lambda t, x: at_row(x, offset=0.5), "//"),
    (lambda t, x: at_row(x, indirect_dim=0.0), "//"),
    (lambda t, x: x.ap([[8 / 1, 4], [1, 8]]), "//"),
    (lambda t, x: at_row(x, scalar_offset=2), "offset="),
    (lambda t, x: at_row(x, scalar_offset=t[0:1, 0:1]), "int32"),
])  # fmt: skip
def test_a_number_where_a_tile_or_an_integer_is_wanted(body, fix):
    with pytest.raises(KernelError) as caught:
        using(body)(X)
    assert re.search(fix, caught.value.fix)
    assert caught.value.location.filename == __file__


@pytest.mark.parametrize(("body", "what", "fix"), [
    (lambda t, x: float(t), "float", "an argument of the kernel"),
    (lambda t, x: range(t), "integer", "an argument of the kernel"),
    (lambda t, x: [1, 2][t], "list indices", "an argument of the kernel"),
    (lambda t, x: round(t), "__round__", "an argument of the kernel"),
    (lambda t, x: np.exp(t), "NumPy", r"nl\.exp"),
    (lambda t, x: np.sum(t), "NumPy", r"nl\.sum"),
    (lambda t, x: np.asarray(x), "NumPy", "nki.isa"),
    (lambda t, x: t.transpose(), r"no \.transpose", r"nisa\.nc_transpose\(dst, data=t\)"),
    (lambda t, x: x.sum(), r"no \.sum", r"nisa\.tensor_reduce\(dst, op, x, axis\)"),
    (lambda t, x: t.reshap((8, 4)), r"no \.reshap", r"t\.reshape"),
    (lambda t, x: t.zyx, r"no \.zyx", r"nki\.isa"),
])  # fmt: skip
def test_a_tensor_asked_for_its_values_or_for_what_an_array_has(body, what, fix):
    with pytest.raises(KernelError, match=what) as caught:
        using(body)(X)
    assert re.search(fix, caught.value.fix)
    assert caught.value.location.filename == __file__


def test_accumulators_that_nothing_added_to():
    def read(tile, x, **how):
        total = nl.ndarray((4, 1), nl.float32, buffer=nl.sbuf)
        nisa.activation(tile, nl.copy, tile, reduce_op=nl.add, reduce_res=total, **how)

    with pytest.raises(KernelError, match="nothing has been added") as caught:
        using(read)(X)
    assert "reset_reduce" in caught.value.fix
    using(lambda t, x: read(t, x, reduce_cmd=nisa.reduce_cmd.reset_reduce))(X)


def test_an_array_without_axes_is_told_and_the_fix_works():
    def add(tile, x, e):
        nisa.tensor_scalar(tile, tile, nl.add, nl.load(e.reshape((1, 1)).broadcast(0, 4)))

    with pytest.raises(KernelError, match=r"argument .* without axes") as caught:
        using(add)(X, np.array(2.0, np.float32))
    assert "reshape(1, 1)" in caught.value.fix
    using(add)(X, np.full((1, 1), 2.0, np.float32))


@pytest.mark.parametrize(
    ("op", "fix"),
    [
        (np.add, "write nl.add, the function"),
        ("add", "write nl.add, the function"),
        (nl.sum, "write nl.add: nl.sum is a function of a tile"),
        (np.exp, "name one of these"),
    ],
)
def test_an_operator_is_a_function_of_nki_language(op, fix):
    with pytest.raises(KernelError, match=r"nisa\.tensor_scalar: operator") as caught:
        using(lambda tile, x: nisa.tensor_scalar(tile, tile, op, 1.0))(X)
    assert caught.value.fix.startswith(fix)


def test_tensors_fit_the_chip():
    spec = nkisim.TensorSpec((1 << 20, 1 << 14), np.float32)  # 64 GiB
    kernel = using(lambda tile, x: None)
    with pytest.raises(KernelError, match=r"128 GiB"):
        nkisim.profile(kernel, spec)


def added(x, of, load):
    """of(x) + load(of): as `import nki` adds a row or a column to a tile."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile, load(of), nl.add)
    nisa.dma_copy(out, tile)
    return out


def spread_by_dma(of):
    t = nl.ndarray((100, 8), of.dtype, buffer=nl.sbuf)
    nisa.dma_copy(t, of.ap([[0, 100], [1, 8]]))
    return t


@pytest.mark.parametrize(
    ("of", "fix", "mended"),
    [
        (np.arange(8.0)[None], r"src=row.ap([[0, 100], [1, 8]])", spread_by_dma),
        (np.arange(100.0)[:, None], "t.broadcast(1, 8)", lambda of: nl.load(of).broadcast(1, 8)),
    ],
)
def test_a_row_and_a_column_are_repeated_as_the_fix_says(of, fix, mended):
    of = of.astype(np.float32)
    with pytest.raises(KernelError, match="float32") as caught:
        nki.jit(added)(X, of, nl.load)
    assert fix in caught.value.fix
    np.testing.assert_array_equal(nki.jit(added)(X, of, mended), X + of)


def test_an_integer_at_the_partition_axis_is_told():
    def pick(x, shape, index):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        s = nl.ndarray(shape, x.dtype, buffer=nl.sbuf)
        nisa.memset(s, 1.0)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(tile, s[index])
        nisa.dma_copy(out, tile)
        return out

    with pytest.raises(KernelError, match="a view") as caught:
        nki.jit(pick)(X, (4, 100, 8), (1, slice(None), slice(None)))
    assert "declare it as (100, 4, 8), and take t[:, i, :]" in caught.value.fix
    mended = (slice(None), 1, slice(None))
    np.testing.assert_array_equal(nki.jit(pick)(X, (100, 4, 8), mended), X)


@pytest.mark.parametrize(
    ("memory", "instead"), [("sbuf", "nl.sbuf"), ("psum", "nl.psum"), ("hbm", "nl.shared_hbm")]
)
def test_memories_as_words_of_a_beta(memory, instead):
    space = {"nl": nl}
    exec(
        f"def kernel(x):\n    t = {memory}.view(dtype=x.dtype, shape=x.shape)\n    return t", space
    )
    with pytest.raises(KernelError, match=f"{memory} is not a name") as caught:
        nki.jit(space["kernel"])(X)
    assert caught.value.fix == f"nl.ndarray(shape, dtype=dtype, buffer={instead})"


@pytest.mark.parametrize(
    ("function", "operator"), [("max", "maximum"), ("min", "minimum"), ("sum", "add")]
)
def test_a_function_of_a_tile_for_an_operator_names_the_operator(function, operator):
    def reduced(op):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
            row = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=row, op=op, data=nl.load(x), axis=1)
            nisa.dma_copy(out, row)
            return out

        return kernel(X)

    with pytest.raises(KernelError) as caught:
        reduced(getattr(nl, function))
    fix = re.match(r"write nl\.(\w+): ", caught.value.fix)
    assert fix is not None
    assert fix[1] == operator
    want = {"max": X.max, "min": X.min, "sum": X.sum}[function](1, keepdims=True)
    np.testing.assert_array_equal(reduced(getattr(nl, fix[1])), want)

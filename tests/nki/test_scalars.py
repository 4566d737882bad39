"""NkiScalar: integers that are computed on the device, by their arithmetic in NumPy."""

from __future__ import annotations

import operator

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import KernelError
from nkisim.errors import IndexingError, ParameterError

A = np.random.default_rng(7).integers(-50, 50, (9, 5)).astype(np.int32)


def stored(*scalars):
    """The values of scalars, through memory."""
    out = nl.ndarray((1, len(scalars)), dtype=scalars[0].dtype, buffer=nl.shared_hbm)
    for n, scalar in enumerate(scalars):
        nisa.scalar_store(out[0:1, n : n + 1], scalar)
    return out


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
def test_arithmetic_wraps_around_as_numpys(dtype, where):
    most = np.iinfo(dtype).max
    values = np.array([[3, -7, most, most - 1]], dtype)

    def kernel(x):
        tensor = x
        if where == "sbuf":
            tensor = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tensor, x)
        a, b, c, d = (nisa.scalar_load(tensor[0:1, n : n + 1]) for n in range(4))
        assert a.dtype == np.dtype(dtype).name
        return stored(a + b, a - b, a * b, b * 4 + 1, 5 - a, 2 * c, c + 1, d * d, 0 - d)

    a, b, c, d = (values[0, n : n + 1] for n in range(4))
    with np.errstate(over="ignore"):
        wanted = [a + b, a - b, a * b, b * 4 + 1, 5 - a, 2 * c, c + 1, d * d, 0 - d]
    found = nki.simulate(kernel)(values)
    np.testing.assert_array_equal(found, np.array(wanted, dtype).reshape(1, -1))


def test_the_example_of_the_page_of_nki_scalars():
    def kernel(x):
        return stored(nisa.scalar_load(x) * nisa.scalar_load(x), -nisa.scalar_load(x))

    found = nki.simulate(kernel)(np.array([[100000]], np.int32))
    np.testing.assert_array_equal(found, [[1410065408, -100000]])


@pytest.mark.parametrize("space", ["hbm", "sbuf"])
def test_a_scalar_moves_a_view_and_bounds_a_loop(space):
    """The sums of the rows from n on: rows of HBM, or of a tile by its columns."""

    def kernel(x, n):
        total = nl.zeros((1, 5), nl.int32, buffer=nl.sbuf)
        row = nl.ndarray((1, 5), nl.int32, buffer=nl.sbuf)
        flat = nl.ndarray((1, 45), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(flat, x.reshape((1, 45)))
        first = nisa.scalar_load(n)

        def body(i):
            if space == "hbm":
                nisa.dma_copy(row, x.ap([[5, 1], [1, 5]], scalar_offset=i))
            else:
                nisa.tensor_copy(row, flat[:, nl.ds(i * 5, 5)])
            nisa.tensor_tensor(total, total, row, nl.add)

        nl.fori_loop(first + 1, 9, body)
        out = nl.ndarray((1, 5), nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, total)
        return out

    for n in (0, 3, 8):
        found = nki.simulate(kernel)(A, np.array([[n - 1]], np.int32))
        np.testing.assert_array_equal(found[0], A[n:].sum(0))


def test_an_offset_of_64_bits_reads_hbm():
    def kernel(x, n):
        out = nl.ndarray((1, 5), nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x.ap([[5, 1], [1, 5]], scalar_offset=nisa.scalar_load(n) - 2))
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(A, np.array([[6]], np.int64))[0], A[4])
    with pytest.raises(KernelError, match="dynamic offset of 9"):
        nki.simulate(kernel)(A, np.array([[11]], np.int64))


def test_it_is_traced_on_the_data_of_each_run_in_jax():
    jax = pytest.importorskip("jax")

    @nki.jit
    def kernel(n):
        return stored(nisa.scalar_load(n) * 3 + 1)

    compiled = jax.jit(kernel)
    for n in (2, 5):
        assert compiled(np.array([[n]], np.int32)) == 3 * n + 1


OPERATORS = {
    **{sign: getattr(operator, name) for sign, name in (("//", "floordiv"), ("%", "mod"))},
    **{sign: getattr(operator, name) for sign, name in (("<<", "lshift"), ("&", "and_"))},
}
REFUSED = {
    **{sign: (lambda s, op=op: op(s, 2), "no others") for sign, op in OPERATORS.items()},
    "1 //": (lambda s: 1 // s, "no others"),
    "int": (lambda s: int(s), "when the kernel runs"),
    "range": (lambda s: range(s), "when the kernel runs"),
    "if": (lambda s: 1 if s else 0, "when the kernel runs"),
    "if of a comparison": (lambda s: 1 if s < 3 else 0, "when the kernel runs"),
    "store of a comparison": (
        lambda s: nisa.scalar_store(nl.ndarray((1, 1), nl.int32), s == 3),
        "nothing takes their result",
    ),
    "sum of a comparison": (lambda s: (s > 1) + 1, "nothing takes their result"),
    "a large int": (lambda s: s + 2**31, "-2147483648 to 2147483647"),
    "another type": (lambda s: s + nisa.NkiScalar(1, nl.int64), "have one type"),
    "a register": (lambda s: s + nisa.register_alloc(1), "a scalar of the same type"),
    "register_store": (
        lambda s: nisa.register_store(nl.ndarray((1, 1), nl.int32), s),
        "use nisa.scalar_store(dst, scalar)",
    ),
    "register_alloc": (nisa.register_alloc, "since NKI 0.7"),
    "register_move": (lambda s: nisa.register_move(nisa.register_alloc(), s), "since NKI 0.7"),
    "-int64": (lambda s: -nisa.NkiScalar(1, nl.int64), "of int64"),
    "float32": (lambda s: nisa.NkiScalar(1, nl.float32), "nl.int32 or nl.int64"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_scalars_do_not_have_is_refused_at_the_kernels_line(what):
    broken, says = REFUSED[what]

    def kernel(n):
        broken(nisa.scalar_load(n))
        return stored(nisa.scalar_load(n))

    with pytest.raises(KernelError) as found:
        nki.simulate(kernel)(np.array([[2]], np.int32))
    assert says in str(found.value)
    assert found.value.location.filename == __file__


def test_a_comparison_alone_is_recorded_and_other_things_are_unequal():
    def kernel(n):
        s = nisa.scalar_load(n)
        assert all(c.is_comparison for c in (s < 3, s <= 3, s > 3, s >= n.shape[0], s == 2, s != s))
        assert s != "two"
        assert s is not None
        return stored(s)

    nki.simulate(kernel)(np.array([[2]], np.int32))


def test_a_comparison_is_not_returned():
    with pytest.raises(ParameterError, match="nothing takes their result"):
        nki.simulate(lambda n: (stored(s := nisa.scalar_load(n)), s < 5))(np.array([[2]], np.int32))


def test_a_scalar_that_nothing_wrote():
    def kernel(n):
        return stored(nisa.NkiScalar() + 1)

    with pytest.raises(IndexingError, match=r"nisa\.scalar_load"):
        nki.simulate(kernel)(np.array([[2]], np.int32))

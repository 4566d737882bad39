"""A kernel that mixes the dialects is told the other spelling, both ways; each fix runs."""

from __future__ import annotations

import neuronxcc.nki as old_nki
import neuronxcc.nki.isa as old_nisa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import KernelError
from nkisim.errors import ParameterError, TraceContextError

X = np.arange(100 * 8, dtype=np.float32).reshape(100, 8)


def result_returned(x):
    a = nl.load(x)
    nisa.tensor_tensor(a, a, op=nl.add)


def masked(x):
    nl.load(x, mask=None)


def typed(x):
    a = nl.load(x)
    nisa.tensor_tensor(dst=a, data1=a, data2=a, op=nl.add, dtype=nl.float32)


def misspelt(x):
    a = nl.load(x)
    nisa.tensor_tensor(dst=a, data1=a, dta2=a, op=nl.add)


def too_many(x):
    a = nl.load(x)
    nisa.tensor_copy(a, a, nisa.engine.vector, "name", 1)


@pytest.mark.parametrize(
    ("kernel", "says", "fix"),
    [
        (result_returned, "missing 1 required", "nisa.tensor_tensor(dst=dst, data1=data1, data2="),
        (masked, "nl.load has no argument mask", "t[0:n]"),
        (typed, "no argument dtype", "declare dst with that dtype"),
        (misspelt, "no argument dta2", "write data2"),
        (too_many, "nisa.tensor_copy takes", "nisa.tensor_copy(dst=dst, src=src)"),
    ],
)
def test_calls_of_neuronxcc_in_nki(kernel, says, fix):
    with pytest.raises(KernelError) as caught:
        nki.jit(kernel)(X)
    text = str(caught.value)
    assert says in text
    assert fix in text
    line = kernel.__code__.co_firstlineno + (1 if kernel is masked else 2)
    assert f"test_mixed_dialects.py:{line}" in text


def test_a_type_error_of_the_kernel_itself_is_left_alone():
    def helper(a):
        return a

    def kernel(x):
        return helper(x, 1)

    with pytest.raises(TypeError, match="helper"):
        nki.jit(kernel)(X)


def test_the_fixes_run_in_nki():
    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.load(x[0:100])
        dst = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=dst, data1=a, data2=a, op=nl.add)
        nisa.tensor_copy(dst=a, src=dst)
        nl.store(out, a)
        return out

    np.testing.assert_array_equal(double(X), 2 * X)


def destination_first(x):
    a = old_nl.load(x)
    b = old_nl.ndarray(a.shape, x.dtype, buffer=old_nl.sbuf)
    old_nisa.tensor_tensor(dst=b, data1=a, data2=a, op=old_nl.add)
    return x


def accumulated(x):
    a = old_nl.load(x)
    old_nisa.nc_matmul(a, a, accumulate=True)
    return x


@pytest.mark.parametrize(
    ("kernel", "fix"),
    [
        (destination_first, "tile[...] = nisa.tensor_tensor(...)"),
        (accumulated, "tile += nisa.nc_matmul(...)"),
    ],
)
def test_keywords_of_nki_in_neuronxcc(kernel, fix):
    with pytest.raises(KernelError, match="has no keyword") as told:
        old_nki.jit(kernel)(X)
    assert fix in str(told.value)
    assert "`import nki`" in str(told.value)


@pytest.mark.parametrize(
    ("ask", "fix"),
    [
        (lambda t: old_nl.fori_loop, "nl.sequential_range"),
        (lambda t: old_nl.dynamic_range, "nl.sequential_range"),
        (lambda t: old_nisa.register_load, "nl.load"),
        (lambda t: old_nisa.dma_compute, "nl.store"),
        (lambda t: t.ap, "nl.mgrid"),
        (lambda t: t.select, "[i]"),
    ],
)
def test_names_of_nki_in_neuronxcc(ask, fix):
    def kernel(x):
        t = old_nl.load(x)
        ask(t)
        return x

    with pytest.raises(KernelError) as caught:
        old_nki.jit(kernel)(X)
    assert fix in str(caught.value)
    assert "`import nki`" in str(caught.value)


def test_the_fixes_run_in_the_older_dialect():
    @old_nki.jit
    def kernel(x):
        out = old_nl.ndarray((100, 4), x.dtype, buffer=old_nl.shared_hbm)
        a = old_nl.load(x)
        b = old_nl.ndarray(a.shape, x.dtype, buffer=old_nl.sbuf)
        b[...] = old_nisa.tensor_tensor(data1=a, data2=a, op=old_nl.add)
        i, j = old_nl.mgrid[0:100, 0:4]
        for _ in old_nl.sequential_range(1):
            old_nl.store(out, old_nl.copy(b[i, 2 * j]))
        return out

    np.testing.assert_array_equal(kernel(X), 2 * X[:, ::2])


def test_sums_in_psum_run_in_the_older_dialect():
    @old_nki.jit
    def kernel(x):
        out = old_nl.ndarray((8, 8), x.dtype, buffer=old_nl.shared_hbm)
        a = old_nl.load(x)
        tile = old_nl.zeros((8, 8), old_nl.float32, buffer=old_nl.psum)
        tile += old_nisa.nc_matmul(a, a)
        old_nl.store(out, old_nl.copy(tile))
        return out

    np.testing.assert_allclose(kernel(X), X.T @ X, rtol=1e-5)


OLDER = {
    "tensor_tensor": (
        lambda t: old_nisa.tensor_tensor(t, t, t, old_nl.add),
        "tile = nisa.tensor_tensor(data1=data1, data2=data2, op=op)",
        lambda t: old_nisa.tensor_tensor(data1=t, data2=t, op=old_nl.add),
    ),
    "tensor_copy": (
        lambda t: old_nisa.tensor_copy(t, t),
        "tile = nisa.tensor_copy(src=src)",
        lambda t: old_nisa.tensor_copy(src=t) + old_nisa.tensor_copy(src=t),
    ),
    "activation": (
        lambda t: old_nisa.activation(t, old_nl.copy, t),
        "tile = nisa.activation(op=op, data=data)",
        lambda t: old_nisa.activation(op=old_nl.copy, data=t, scale=2.0),
    ),
    "tensor_scalar": (
        lambda t: old_nisa.tensor_scalar(t, t, old_nl.multiply, 2.0),
        "leave the destination out",
        lambda t: old_nisa.tensor_scalar(t, old_nl.multiply, 2.0),
    ),
    "dma_copy": (
        lambda t: old_nisa.dma_copy(t, t),
        "write nisa.dma_copy(dst=dst, src=src)",
        lambda t: old_nisa.tensor_scalar(t, old_nl.multiply, 2.0),
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_a_destination_that_comes_first_in_the_older_dialect(name):
    broken, fix, mended = OLDER[name]

    def kernel(x, call):
        out = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, call(old_nl.load(x)))
        return out

    with pytest.raises(KernelError) as caught:
        old_nki.jit(kernel)(X, broken)
    assert fix in caught.value.fix
    assert "import nki" in caught.value.fix or name == "dma_copy"
    assert caught.value.location.filename == __file__
    np.testing.assert_array_equal(old_nki.jit(kernel)(X, mended), 2 * X)


def test_a_tensor_of_nki_is_not_assigned_in_neuronxcc():
    kept = []

    @nki.jit
    def keeps(x):
        kept.append(nl.load(x))
        return nl.copy(kept[0]) and x

    keeps(X)

    def kernel(x):
        kept[0][...] = old_nl.load(x)
        return x

    with pytest.raises(
        TraceContextError, match=r"is assigned to in kernel, a kernel of `neuronxcc"
    ):
        old_nki.jit(kernel)(X)


def of_yields(x):
    yield nl.load(x)


async def of_awaits(x):
    return nl.load(x)


@pytest.mark.parametrize("wrong", [3, len, of_yields, of_awaits])
def test_what_runs_nothing_is_no_kernel_of_nki(wrong):
    with pytest.raises(ParameterError, match=r"not a kernel|runs nothing"):
        nki.jit(wrong)

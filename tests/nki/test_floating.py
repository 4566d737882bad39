"""One result for one kernel and data, whatever the floating-point state of the caller."""

from __future__ import annotations

import ctypes
import threading

import neuronxcc.nki as old
import neuronxcc.nki.language as ol
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.numerics.floating import DefaultEnvironment


@nki.jit
def in_nki(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=1 / 3)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1e-39)
    nl.store(out, value=t)
    return out


@old.jit
def in_neuronxcc(x):
    out = ol.ndarray(x.shape, dtype=x.dtype, buffer=ol.shared_hbm)
    ol.store(out, value=ol.add(ol.multiply(ol.load(x), 1 / 3), 1e-39))
    return out


@nki.jit
def product(x):
    """Of denormal numbers, which BLAS multiplies."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x[0:128, 0:128])
    p = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=t, moving=t)
    y = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=p)
    nl.store(out, value=y)
    return out


@nki.jit
def by_data(x):
    """Is traced on the data of each run."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    small = np.float32(1e-39) * np.float32(0.5)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(small))
    nl.store(out, value=t)
    return out


KERNELS = [in_nki, in_neuronxcc, product, by_data]
VALUES = np.resize(np.float32([1e-39, 1.0, 1e-20, -3e-39, 0.1]), (128, 128))


def _flushed(call):
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    try:
        return call()
    finally:
        torch.set_flush_denormal(False)


def _rounded_up(call):
    library = ctypes.PyDLL(None)
    up = {"x86_64": 0x800, "aarch64": 0x400000}[__import__("platform").machine()]
    before = library.fegetround()
    assert library.fesetround(up) == 0
    try:
        found = call()
        assert library.fegetround() == up  # which the caller keeps
    finally:
        library.fesetround(before)
    return found


def _raising(call):
    with np.errstate(all="raise"):
        return call()


def _in_a_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(_flushed(call)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("state", [_flushed, _rounded_up, _raising, _in_a_thread])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("traced", ["before", "then"])
def test_the_callers_state_changes_no_result(kernel, state, traced):
    wanted = kernel(VALUES)
    kernel = kernel if traced == "before" else kernel._retraced()
    np.testing.assert_array_equal(state(lambda: kernel(VALUES)), wanted)
    np.testing.assert_array_equal(kernel(VALUES), wanted)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_jax_which_flushes_denormals_gives_what_numpy_arrays_give(kernel):
    jax = pytest.importorskip("jax")
    wanted = kernel(VALUES)
    np.testing.assert_array_equal(jax.jit(kernel)(VALUES), wanted)
    np.testing.assert_array_equal(kernel(jax.numpy.asarray(VALUES)), wanted)


def test_denormals_are_numbers():
    assert in_nki(np.full((4, 4), 3e-39, np.float32))[0, 0] == pytest.approx(2e-39, rel=1e-5)


def test_the_caller_gets_its_state_back_after_an_error():
    def fails():
        with pytest.raises(ZeroDivisionError), DefaultEnvironment():
            raise ZeroDivisionError
        return np.float32(1e-39) * np.float32(0.5)

    assert _flushed(fails) == 0

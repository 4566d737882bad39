"""Kernels go to other processes as functions do: by name, with what they are bound to."""

import copy
import pickle

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim import machine
from nkisim.runtime.kernel import as_kernel

X = np.arange(64, dtype=np.float32).reshape(4, 16)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    part = nl.ds(nl.program_id(0) * 2, 2)
    nl.store(out[part], nl.load(x[part]) * 2.0)
    return out


def plain(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + 1.0)
    return out


class Here:
    @staticmethod
    @nki.jit
    def method(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 3.0)
        return out


def test_a_kernel_comes_back_as_it_was():
    bound = ncc.skip_middle_end_transformations(doubled).on(machine.GEN3)[2]
    again = pickle.loads(pickle.dumps(bound))
    assert again.func is doubled.func
    assert again.grid == bound.grid
    assert again.options == bound.options
    assert again.machine is machine.GEN3
    np.testing.assert_array_equal(again(X), 2 * X)


@pytest.mark.parametrize(("kernel", "want"), [(as_kernel(plain), X + 1), (Here.method, 3 * X)])
def test_other_kernels_of_a_module(kernel, want):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(X), want)


def test_traces_stay_where_they_are():
    doubled[2](X)
    again = pickle.loads(pickle.dumps(doubled[2]))
    assert again.cache_info() == (0, 0, 0)
    assert len(pickle.dumps(doubled[2])) < 2000


def test_what_no_name_leads_to_is_refused_as_functions_are():
    @nki.jit
    def inner(x):
        return x

    with pytest.raises(pickle.PicklingError, match="at the top level of a module"):
        pickle.dumps(inner)


def test_a_copy_keeps_the_kernel():
    np.testing.assert_array_equal(copy.copy(doubled)[2](X), 2 * X)
    np.testing.assert_array_equal(copy.deepcopy(doubled)[2](X), 2 * X)


def test_a_kernel_runs_in_another_process(run_python):
    """Copied from one without the threads of JAX or PyTorch, which a copy would wait for."""
    run_python(
        """
        import multiprocessing
        import kernels
        import neuronxcc.nki as nki
        import neuronxcc.nki.language as nl
        import numpy as np

        @nki.jit
        def doubled(x):
            y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(y, value=nl.multiply(nl.load(x), 2.0))
            return y

        x = np.ones((4, 8), np.float32)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            np.testing.assert_array_equal(pool.apply(doubled, (x,)), 2 * x)
        """
    )


def test_a_machine_of_its_own_is_pickled_by_value():
    assert pickle.loads(pickle.dumps(machine.GEN2)) is machine.GEN2
    other = machine.replace(machine.GEN2, sbuf_bytes=1 << 20)
    assert pickle.loads(pickle.dumps(other)) == other

"""Keywords that an operation ignores are told."""

import inspect
import warnings

import numpy as np
import pytest

import nkisim
from nkisim.errors import NkiWarning, ParameterError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

X = np.ones((128, 4), np.float32)


def copied(**keywords):
    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(y, nl.load(x, **keywords))
        return y

    return Kernel(kernel)


def test_a_misspelt_keyword_is_told_at_the_kernel_line():
    with pytest.warns(NkiWarning, match="nl.load ignores maks=") as caught:
        np.testing.assert_array_equal(copied(maks=None)(X), X)
    (warning,) = caught
    assert warning.filename == __file__
    assert warning.lineno == inspect.getsourcelines(copied)[1] + 3
    assert "write mask, if that is meant" in str(warning.message)
    assert "src, mask, dtype" in str(warning.message)


def test_one_that_is_like_no_other_is_to_be_left_out():
    with pytest.warns(NkiWarning, match="leave it out"):
        copied(swizzle=True)(X)


def test_all_of_them_are_named():
    with pytest.warns(NkiWarning, match="ignores dtyp=, maks="):
        copied(maks=None, dtyp=None)(X)


@pytest.mark.parametrize("operation", [nl.exp, nl.add, nisa.tensor_copy, nisa.activation])
def test_operations_keep_their_names_and_signatures(operation):
    assert "kwargs" in inspect.signature(operation).parameters
    assert operation.__doc__
    assert not operation.__name__.startswith("_")


def test_keywords_that_the_sdk_passes_itself_are_taken():
    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros(x.shape, x.dtype, lazy_initialization=True)
        nl.store(y, total + nl.load(x))
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(Kernel(kernel)(X), X)


def test_the_check_can_be_turned_up_and_off():
    with nkisim.checks(keyword="error"), pytest.raises(ParameterError, match="maks="):
        copied(maks=None)(X)
    with warnings.catch_warnings(), nkisim.checks(keyword="off"):
        warnings.simplefilter("error")
        copied(maks=None)(X)


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
@pytest.mark.parametrize("keywords", [{"step": 2}, {"start": 0, "stop": 8}, {"stop": 8}])
def test_the_bounds_of_a_loop_have_no_names(name, keywords):
    """Python's range refuses them, too. Ignored, the loop would run other iterations."""

    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in getattr(nl, name)(*[0, 4][: 2 - len(keywords)], **keywords):
            nl.store(y[:, i : i + 1], nl.load(x[:, i : i + 1]))
        return y

    with pytest.raises((ParameterError, TypeError), match=r"range.*keyword"):
        Kernel(kernel)(X)


MEANT = {
    "out": lambda t: nl.add(t, t, out=t),
    "where": lambda t: nl.exp(t, where=t),
    "initial": lambda t: nl.sum(t, axis=1, initial=1.0),
    "keepdims": lambda t: nl.all(t, axis=1, keepdims=True),
    "axes": lambda t: nl.transpose(t, axes=(1, 0)),
    "dst": lambda t: nisa.tensor_copy(t, dst=t),
    "accumulate": lambda t: nisa.nc_matmul(t, t, accumulate=True),
}


@pytest.mark.parametrize("keyword", MEANT)
def test_a_keyword_that_says_something_is_refused(keyword):
    """One that NumPy's function of the name has, or `import nki`: ignored, what it says is not
    done."""

    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        MEANT[keyword](nl.load(x))
        nl.store(y, nl.load(x))
        return y

    with pytest.raises(ParameterError, match=f"has no keyword {keyword}="):
        Kernel(kernel)(X)

"""Inputs of activation functions outside of the documented range are told when a kernel runs."""

from __future__ import annotations

import warnings

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import NkiWarning, RangeError
from nkisim.numerics.ranges import RANGES


def applied(body, value, mask=None):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, body(nl.load(x)))
        return out

    x = np.ones((4, 6), np.float32)
    x[2, 3] = value
    return kernel, x


def told(body, value) -> str | None:
    """The warning, if there is one."""
    kernel, x = applied(body, value)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kernel(x)
        kernel(x)  # says it once
    messages = [str(w.message) for w in seen if issubclass(w.category, NkiWarning)]
    assert len(messages) <= 1
    return messages[0] if messages else None


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_the_range_are_inside_and_what_lies_beyond_is_told(name):
    low, high = RANGES[name]
    function = getattr(nl, name)
    assert told(function, np.float32(low)) is None
    assert told(function, np.float32(high)) is None
    assert f"activation({name}) on the Scalar Engine is given" in told(function, 1.01 * high)
    outside = 1.01 * low if low < 0 else low / 1.01
    assert "is valid from" in told(function, outside)


def test_scale_and_bias_count():
    def body(x):
        return nisa.activation(np.sin, x, scale=2.0, bias=nl.full((4, 1), 0.5, nl.float32))

    assert told(body, 1.3) is None
    assert "is given 3.3" in told(body, 1.4)


def test_either_sign_of_a_reciprocal_and_zero():
    assert told(nl.reciprocal, -2.0) is None
    assert "magnitude" in told(nl.reciprocal, 0.0)
    assert told(nisa.reciprocal, 0.0) is None  # the Vector Engine's has no range
    assert told(nl.sqrt, 0.0) is None
    assert told(nl.sqrt, -1.0) is not None


def test_functions_without_a_range_take_everything():
    assert told(nl.exp, 80.0) is None
    assert told(nl.tanh, -1e30) is None


def test_masked_elements_do_not_count():
    i_p, i_f = nl.arange(4)[:, None], nl.arange(6)[None, :]

    def body(x):
        out = nl.zeros((4, 6), nl.float32)
        out[...] = nl.sin(x, mask=i_p + i_f < 5)
        return out

    assert told(body, 9.0) is None  # element (2, 3)


def test_elements_that_nothing_wrote_do_not_count():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.sbuf)
        tile[0:4] = nl.load(x)
        done = nl.log(tile)
        nl.store(out[0:4], done[0:4])
        return out

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kernel(np.ones((4, 6), np.float32))
    assert not [w for w in seen if "valid from" in str(w.message)]


def test_it_can_be_an_error_or_off():
    kernel, x = applied(nl.log, -1.0)
    with nkisim.checks(range="error"), pytest.raises(RangeError, match="given -1"):
        kernel(x)
    with nkisim.checks(range="off"), warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x)

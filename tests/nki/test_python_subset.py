"""Python that AWS's compiler of `import nki` refuses runs, with a warning at the kernel's line."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

X = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)


def _copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


def with_raise(x):
    if x.shape[0] > 128:
        raise ValueError("rows")
    return _copy(x)


def with_try(x):
    try:
        return _copy(x)
    except ValueError:
        return x


def with_with(x):
    with contextlib.nullcontext():
        return _copy(x)


def with_assert(x):
    assert x.shape[0] <= 128, "rows"
    return _copy(x)


def with_if(x):
    if x.shape[0] <= 128:
        return _copy(x)
    return x


def in_order(x):
    with nl.no_reorder():
        return _copy(x)


@pytest.mark.parametrize(
    ("kernel", "statement", "offset"),
    [(with_raise, "raise", 2), (with_try, "try", 1), (with_with, "with", 1)],
)
def test_a_statement_the_compiler_refuses_is_a_warning_at_its_line(kernel, statement, offset):
    with pytest.warns(UserWarning, match=f"has a '{statement}' statement") as caught:
        result = nki.jit(kernel)(X)
    np.testing.assert_array_equal(result, X)
    (message,) = [str(w.message) for w in caught]
    assert f"{Path(__file__).name}:{kernel.__code__.co_firstlineno + offset}" in message


@pytest.mark.parametrize("kernel", [with_assert, with_if, in_order])
def test_what_the_fixes_say_and_order_regions_run_without_a_warning(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(nki.jit(kernel)(X), X)

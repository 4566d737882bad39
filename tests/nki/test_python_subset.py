"""Python that AWS's compiler of NKI 0.6 refuses runs, with a warning at the kernel's line."""

from __future__ import annotations

import contextlib
import functools
import warnings
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def release(monkeypatch):
    monkeypatch.setenv("NKISIM_NKI", "0.6")


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


COUNT = 0


def with_import(x):
    import math

    return _copy(x) if math.pi > 3 else x


def with_match(x):
    match x.shape[0]:
        case 128:
            return _copy(x)
        case _:
            return x


def with_global(x):
    global COUNT
    COUNT = 1
    return _copy(x)


def with_nonlocal(x):
    count = 0

    def more():
        nonlocal count
        count += 1

    more()
    return _copy(x)


def with_del(x):
    rows = x.shape[0]
    del rows
    return _copy(x)


def with_class(x):
    class Sizes(nl.NKIObject):
        rows: int = 128

    return _copy(x) if Sizes().rows == x.shape[0] else x


def with_async(x):
    async def later():
        return 1

    return _copy(x) if callable(later) else x


def with_is(x, scale=None):
    return _copy(x) if scale is None else x


def with_is_not(x):
    return _copy(x) if x.shape is not None else x


NAMES = ("import", "match", "global", "nonlocal", "del", "class", "async", "is", "is_not", "raise")


def caught(kernel):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(nki.jit(kernel)(X), X)
    return [str(w.message) for w in found if "takes a subset of Python" in str(w.message)]


@pytest.mark.parametrize("name", NAMES)
def test_each_statement_is_told_in_the_kernel_and_in_what_it_calls(name):
    function = globals()[f"with_{name}"]
    word = name.replace("_", " ")
    (own,) = caught(function)
    assert f"kernel with_{name} has a '{word}'" in own

    def kernel(x):
        return function(x)

    (of_called,) = caught(kernel)
    assert f"with_{name}, which kernel kernel calls, has a '{word}'" in of_called
    assert (
        of_called.partition("at:")[2].split(" in ")[0] == own.partition("at:")[2].split(" in ")[0]
    )


class Helper(nl.NKIObject):
    @staticmethod
    def checked(n):
        if n > 128:
            raise ValueError(n)
        return n


def test_functions_two_calls_deep_and_of_classes_and_jitted_ones_are_looked_at():
    def inner(x):
        return with_del(x)

    jitted = nki.jit(inner)

    def kernel(x):
        Helper.checked(x.shape[0])
        return jitted(x)

    found = caught(kernel)
    assert len(found) == 2
    assert any("with_del, which" in w for w in found)
    assert any("Helper.checked, which" in w for w in found)


class Sizes(nl.NKIObject):
    def __init__(self, rows):
        if rows > 128:
            raise ValueError(rows)
        self.rows = rows

    @property
    def half(self):
        import math

        return math.ceil(self.rows / 2)


def test_methods_and_functions_that_a_kernel_is_given_are_looked_at():
    def by_class(x):
        return _copy(x) if Sizes(x.shape[0]).half == 64 else x

    found = caught(by_class)
    assert len(found) == 2
    assert any("Sizes.__init__, which" in w and "'raise'" in w for w in found)
    assert any("Sizes.half, which" in w and "'import'" in w for w in found)

    def by_name(x, copy=with_del):
        return copy(x)

    partial = functools.partial(with_del)

    def by_partial(x, copy=partial):
        return copy(x)

    def passed_on(x):
        return by_name(x, with_match)

    for kernel in (by_name, by_partial):
        (told,) = caught(kernel)
        assert "with_del, which" in told
    assert any("with_match, which" in w for w in caught(passed_on))

    def by_annotation(x: Sizes):
        return _copy(x)

    assert not caught(by_annotation)

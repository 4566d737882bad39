"""The source of functions, against Python's own `inspect`."""

import functools
import inspect
import textwrap

import pytest

from nkisim.runtime.kernel import Kernel
from nkisim.trace.sources import original_of, source_of


def plain(x):
    """Text with a

    blank line."""
    return (
        x,  # and a comment
    )


@functools.lru_cache(
    maxsize=3,
)
def decorated(x):
    for i in range(3):
        x += i
    return x


def ends_in_what_does_nothing(x):
    if x:
        return x
    else:
        # nothing

        pass


# fmt: off
def leaves_its_margin(x):
    text = """
and comes back
"""
    for _ in text:
# as comments may
        x = (
    x
)


def short(x): return [y for y in x]
# fmt: on


class Holder:
    def method(self):
        def inner():
            return self

        return inner


inner = Holder().method()


FUNCTIONS = [
    plain,
    decorated.__wrapped__,
    ends_in_what_does_nothing,
    leaves_its_margin,
    short,
    Holder.method,
    inner,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_source_is_that_of_inspect(function):
    assert source_of(function.__code__) == textwrap.dedent(inspect.getsource(function))


def test_there_may_be_none():
    names = {}
    exec("def f(): pass", names)
    assert source_of(names["f"].__code__) is None


def test_a_kernel_that_is_compiled_again_has_the_source_that_it_had():
    function = decorated.__wrapped__
    again = Kernel(function).body.__code__
    assert again is not function.__code__
    assert original_of(again) is function.__code__
    assert original_of(function.__code__) is function.__code__

"""The syntax trees of functions, against Python's own `inspect`."""

import ast
import functools
import inspect
import textwrap

import pytest

from nkisim.runtime.kernel import Kernel
from nkisim.trace.sources import definition


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
def test_the_definition_is_in_the_source_that_inspect_finds(function):
    node = definition(function.__code__)
    (wanted,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert ast.dump(node) == ast.dump(wanted)
    assert node.lineno - wanted.lineno == function.__code__.co_firstlineno - 1


def test_there_may_be_none():
    names = {}
    exec("def f(): pass", names)
    assert definition(names["f"].__code__) is None


def test_a_kernel_that_is_compiled_again_has_the_definition_that_it_had():
    def joins(x):
        return x and x

    again = Kernel(joins).body.__code__
    assert again is not joins.__code__
    assert definition(again) is definition(joins.__code__) is not None


TEXT = "SIZE = 1\n\n\ndef f(x):\n    y = x + 1\n"


@pytest.mark.parametrize("decorated", [False, True])
@pytest.mark.parametrize(
    "edit",
    [TEXT.replace("+ 1", "+ 2"), "\n" + TEXT, TEXT.replace("def f", "def g"), "def f(x:", ""],
)
def test_text_that_was_edited_is_not_that_of_the_function(edit, decorated, tmp_path):
    path = tmp_path / "edited.py"
    own = f"{tmp_path.name}"  # equal functions of two files have one text
    text, edit = TEXT + f"    return y, {own!r}\n", edit and edit + f"    return y, {own!r}\n"
    path.write_text(text)
    names: dict = {}
    exec(compile(text, str(path), "exec"), names)
    if decorated:  # which keeps the text
        Kernel(names["f"])
    path.write_text(edit)
    node = definition(names["f"].__code__)
    assert (node and ast.unparse(node.body[0])) == ("y = x + 1" if decorated else None)

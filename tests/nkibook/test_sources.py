"""The listing of two kernels beside each other, against lists written by hand."""

from html.parser import HTMLParser

import pytest

from kernels.add import nki_kernels, nki_kernels_06
from nkibook.sources import compare

OLD = '''
    def f(x):
        """Says what it does.

        In two lines.
        """
        a = load(x)
        return a
'''
NEW = '''
    def f(x):
        """Another text."""
        a = ndarray(x.shape)
        copy(a, x)

        return a
'''


def test_lines_that_differ_have_a_sign():
    assert repr(compare(OLD, NEW, captions=("then", "now"))).splitlines() == [
        "- then",
        "+ now",
        "  def f(x):",
        "-     a = load(x)",
        "+     a = ndarray(x.shape)",
        "+     copy(a, x)",
        "+",
        "      return a",
    ]
    assert compare(OLD, NEW).changed == (1, 2)


def test_deeper_lines_are_the_same_lines():
    assert compare("a = 1", "if b:\n    a = 1").changed == (0, 1)


def test_a_docstring_that_is_all_of_a_function_stays():
    assert compare('def f():\n    "Nothing."', "def f(): ...").old == ("def f():", '    "Nothing."')


def test_several_sources_are_one_listing():
    assert compare(["a = 1", "b = 2"], "b = 2").old == ("a = 1", "", "b = 2")


def test_kernels_are_taken_as_functions_are():
    both = compare(nki_kernels.nki_tensor_add_kernel, nki_kernels_06.nki_tensor_add_kernel)
    assert both.old[0] == both.new[0] == "@nki.jit"
    assert not any('"""' in line for line in (*both.old, *both.new))
    assert any("mask=inside" in line for line in both.old)


def test_what_is_no_python_is_refused():
    with pytest.raises(SyntaxError):
        compare("a =", "a = 1")


class _Columns(HTMLParser):
    """Text of the HTML, what is hidden from a screen reader left out."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag == "style" or dict(attrs).get("aria-hidden") == "true")

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        self.text += "" if any(self.open) else data


def test_html_has_each_line_once():
    both = compare(OLD, "def f(x):\n    a = x < 1\n    return a", captions=("<then>", "now"))
    columns = _Columns()
    columns.feed(both._repr_html_())
    shown = columns.text.replace("<then>", "<then>\n").replace("now", "now\n").splitlines()
    assert [line.rstrip() for line in shown] == ["<then>", "now", *repr(both).splitlines()[2:]]

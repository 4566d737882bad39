"""Loop indices: what a kernel decides by them is known for iterations that are not traced."""

import math
import numbers
import operator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nkisim.errors import NotUniform
from nkisim.trace.loop_index import (
    Decision,
    LoopIndex,
    Variable,
    begin_notes,
    decisions,
    note_use,
    slope,
    uses,
)

TWO = ("+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^", "**")
ORDERS = ("lt", "le", "eq", "ne", "gt", "ge")


def formulas(names):
    """Python expressions of some names."""
    leaves = st.one_of(st.sampled_from(names), st.integers(0, 7).map(str))

    def larger(inner):
        two = st.tuples(inner, st.sampled_from(TWO), inner).map("({0[0]} {0[1]} {0[2]})".format)
        one = st.tuples(st.sampled_from(("-", "abs", "~")), inner).map("{0[0]}({0[1]})".format)
        both = st.tuples(inner, inner, st.integers(0, 1)).map(
            "divmod({0[0]}, {0[1]})[{0[2]}]".format
        )
        return st.one_of(two, one, both)

    return st.recursive(leaves, larger, max_leaves=5)


def value(formula, **names):
    """What a formula is, as Python has it; None where there is no (small) number."""
    try:
        found = eval(formula, {}, names)
    except (ArithmeticError, TypeError, ValueError, NotUniform):  # ~ of a float is one
        return None
    return found if isinstance(found, int) and abs(found) < 2**40 else None


@settings(max_examples=300, deadline=None)
@given(formulas(("i", "j")), formulas(("i", "j")), st.sampled_from(ORDERS))
def test_decisions_are_those_of_python(left, right, order):
    """In all iterations of a loop, given one, and in all of one inside of it."""
    compare = getattr(operator, order)
    rows, columns = range(1, 9, 2), range(5, 0, -1)
    table = [[(value(left, i=i, j=j), value(right, i=i, j=j)) for j in columns] for i in rows]
    assume(all(a is not None and b is not None for row in table for a, b in row))
    wanted = np.array([[compare(a, b) for a, b in row] for row in table])
    outer, inner = Variable(1), Variable(2)
    i, j = LoopIndex(rows[0], outer), LoopIndex(columns[0], inner)
    a, b = value(left, i=i, j=j), value(right, i=i, j=j)
    assert (a, b) == table[0][0]
    begin_notes()
    compare(a, b)
    assume(decisions())  # else no loop index is in it
    (found,) = decisions()
    for variable, values, same in (
        (inner, columns, [o == wanted[0, 0] for o in wanted[0]]),
        (outer, rows, [o == wanted[0, 0] for o in wanted[:, 0]]),
    ):
        if found.depends_on(variable):
            assert found.holds(variable, np.array(values)).tolist() == same
        else:
            assert all(same)
        if found.holds_throughout(variable, values):
            assert all(same)
    everywhere = found._replace(within=((inner, columns),))
    if everywhere.depends_on(outer):
        same = [all(o == wanted[0, 0] for o in row) for row in wanted]
        assert everywhere.holds(outer, np.array(rows)).tolist() == same


@settings(max_examples=300, deadline=None)
@given(formulas(("i", "j")), st.integers(0, 11), st.integers(0, 3))
def test_what_is_used_grows_by_its_slope(formula, start, j):
    """From one iteration to any other that decides alike."""
    outer, inner = Variable(1), Variable(2)
    index = value(formula, i=LoopIndex(start, outer), j=LoopIndex(j, inner))
    assume(isinstance(index, LoopIndex))
    begin_notes()
    note_use(index)
    assert uses() == [index]
    values = np.arange(12)
    alike = np.ones(12, bool)
    for d in decisions():
        if d.depends_on(outer):
            alike &= d.holds(outer, values)
    for i in values[alike].tolist():
        assert value(formula, i=i, j=j) - index.value == slope(index, outer) * (i - start)


def test_a_truth_value_is_a_decision():
    i = LoopIndex(3, Variable(1))
    begin_notes()
    assert not i % 3
    (found,) = decisions()
    assert found.holds(i.variable, np.arange(7)).tolist() == [n % 3 == 0 for n in range(7)]


@settings(max_examples=300, deadline=None)
@given(st.integers(-9, 9), st.integers(-3, 3), st.sampled_from(ORDERS), st.integers(1, 12))
def test_orders_along_a_line_are_seen_at_its_ends(start, step, order, n):
    assume(order not in ("eq", "ne"))
    compare = getattr(operator, order)
    i, j = LoopIndex(0, Variable(1)), LoopIndex(2, Variable(2))
    begin_notes()
    outcome = compare(3 + i * step, start + 2 * j)
    found = [d for d in decisions() if d.depends_on(i.variable)]
    same = all(compare(3 + k * step, start + 4) == outcome for k in range(n))
    assert all(d.holds_throughout(i.variable, range(n)) == same for d in found)


def test_what_python_cannot_compute_is_not_told():
    i = LoopIndex(3, Variable(1))
    begin_notes()
    assert 12 // i == 4
    assert not decisions()[0].holds(i.variable, np.arange(7)).any()  # one of them divides by 0


def test_numbers_of_more_than_64_bits_are_not_told():
    i = LoopIndex(0, Variable(1))
    for large in (i << 70 * i, i**40, i * 2**40 * i * 2**30):
        begin_notes()
        assert large == 0
        found = decisions()[0].holds(i.variable, np.array([0, 2, 11]))
        assert not found[1:].any()


def test_very_long_formulas_are_not_told():
    i = total = LoopIndex(1, Variable(1))
    for _ in range(5000):
        total = total + i
    begin_notes()
    assert total > 3
    assert not decisions()[0].holds(i.variable, np.arange(3)).any()
    assert not decisions()[0].holds_throughout(i.variable, range(3))


def test_what_is_left_of_a_loop_that_is_over_stays():
    outer, inner = LoopIndex(0, Variable(1)), LoopIndex(7, Variable(2))
    begin_notes()
    assert outer < inner
    assert decisions()[0].holds(outer.variable, np.array([6, 7, 8])).tolist() == [
        True,
        False,
        False,
    ]


TABLE = [5, 6, 7, 8, 9]
UNSEEN = {
    "divided": lambda i: i / 2,
    "divides": lambda i: 2 / i,
    "a float": lambda i: i * 0.5,
    "a root": lambda i: i**-1,
    "compared with text": lambda i: i == "one",
    "compared with nothing": lambda i: i == None,  # noqa: E711
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "square root": math.sqrt,
    "hundreds": lambda i: round(i, -2),
    "text": str,
    "formatted": lambda i: f"{i}",
    "formatted to a width": lambda i: f"{i:03}",
    "formatted as in C": lambda i: "%d" % i,  # noqa: UP031
    "looked up in a list": lambda i: TABLE[i],
    "looked up by a method": lambda i: TABLE.__getitem__(i),
    "looked up in an array": lambda i: np.array(TABLE)[i],
    "cut from a list": lambda i: TABLE[i:],
    "looked up in text": lambda i: "three"[i],
    "in a set": lambda i: i in {3, 4},
    "in a dictionary": lambda i: {3: 4}[i],
    "an array": np.array,
    "added to an array": lambda i: np.arange(3) + i,
    "added to a fraction of NumPy": lambda i: i + np.float32(3),
    "an array added to it": lambda i: i + np.arange(3),
    "taken from an unsigned number": lambda i: np.uint8(2) - i,
    "how long": lambda i: [0] * i,
    "bits": lambda i: i.bit_length(),
    "Python's range": range,
}


# No plain number would do the same.
ALWAYS = [
    "compared with text", "compared with nothing", "added to an array", "an array added to it",
    "taken from an unsigned number",
]  # fmt: skip


@pytest.mark.parametrize("use", UNSEEN.values(), ids=UNSEEN)
def test_what_is_not_followed_names_the_loop(use):
    begin_notes()
    late = Variable(17)
    late.must_be = True
    with pytest.raises(NotUniform) as caught:
        use(LoopIndex(3, late))
    assert caught.value.loop == 17


@pytest.mark.parametrize("how", sorted({*UNSEEN} - {*ALWAYS}))
def test_the_loop_that_is_named_has_iterations_left_out(how):
    begin_notes()
    first, late = Variable(16), Variable(17)
    late.must_be = True
    with pytest.raises(NotUniform) as caught:
        UNSEEN[how](LoopIndex(2, first) - LoopIndex(3, first) + LoopIndex(4, late))
    assert caught.value.loop == 17
    assert first.is_followed


@pytest.mark.parametrize("how", sorted({*UNSEEN} - {*ALWAYS}))
def test_before_iterations_are_left_out_a_number_may_be_made_of_an_index(how):
    begin_notes()
    outer, inner = Variable(16), Variable(17)
    found, wanted = (UNSEEN[how](i) for i in (LoopIndex(1, outer) * LoopIndex(3, inner), 3))
    assert isinstance(found, type(wanted))
    assert np.all(found == wanted)
    assert not outer.is_followed
    assert not inner.is_followed


@pytest.mark.parametrize("use", [round, math.floor, math.ceil, math.trunc, operator.pos])
def test_what_changes_no_int_leaves_the_index(use):
    i = LoopIndex(3, Variable(1))
    assert use(i) is i


@pytest.mark.parametrize("three", [3, True + 2, np.int64(3), np.int32(3)], ids=repr)
def test_numbers_of_numpy_leave_an_index(three):
    i = LoopIndex(5, Variable(1))
    right = (i * three, 15), (i - three, 2), (i // three, 1), (i % three, 2)
    left = (three * i, 15), (three + i, 8), (three - i, -2)
    for found, wanted in (*right, *left):
        assert type(found) is LoopIndex
        assert found.value == wanted


def test_to_a_kernel_it_is_an_int():
    i = LoopIndex(3, Variable(1))
    assert isinstance(i, int)
    assert isinstance(i, numbers.Integral)
    assert not isinstance(i, float | str | list)
    assert not hasattr(i, "shape")
    with pytest.raises(AttributeError, match="'int' object has no attribute 'shape'"):
        _ = i.shape
    with pytest.raises(TypeError):
        i + "text"


def test_one_index_does_not_depend_on_another_loop():
    i = LoopIndex(3, Variable(1))
    assert not Decision(operator.lt, i, 4, True).depends_on(Variable(2))

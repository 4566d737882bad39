"""A verdict is right only for the right answer, and points at the first wrong element."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels
from kernels.arrays import tolerance
from nkibook.exercises import check, exercise
from nkibook.exercises.comparing import compare
from nkibook.exercises.puzzles import add_torch as puzzles
from nkibook.exercises.solutions.neuronxcc import add_torch as solutions

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def double(x):
    return 2 * x


def off_in_one_place(x):
    y = 2 * x
    y[1, 2] += 1
    return y


@nki.jit
def doubled(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.load(x) * 2)
    return y


@nki.jit
def shifted(x):
    """Doubles, and reads one column too far to the right from column 1 on."""
    columns = x.shape[1]
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x) * 2
    nl.store(y, value=tile)
    nl.store(y[:, nl.ds(1, columns - 2)], value=tile[:, nl.ds(2, columns - 2)])
    return y


def test_the_reference_itself_is_right():
    verdict = check(double, double, X)
    assert verdict
    assert repr(verdict).startswith("Right: the answer agrees, but no kernel instruction")


def test_the_first_wrong_element_is_named_with_both_values():
    verdict = check(off_in_one_place, double, X)
    assert not verdict
    assert "1 of 12 elements differ" in verdict.message
    assert "[1, 2]: 13, and should be 12" in verdict.message
    assert verdict.index == (1, 2)


@pytest.mark.parametrize(
    ("candidate", "says"),
    [
        (lambda x: None, "returns None"),
        (lambda x: x[:2], "shape is (2, 4)"),
        (lambda x: 2 * x.astype(np.float64), "dtype is float64"),
        (lambda x: (x, x), "returns 2, and should return one output"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_other_failures_say_what_they_are(candidate, says):
    verdict = check(candidate, double, X)
    assert not verdict
    assert says in verdict.message


def test_nan_equals_nan():
    with_nan = np.array([[np.nan, 1.0]], np.float32)
    assert check(lambda x: x, lambda x: x, with_nan)


@pytest.mark.parametrize(
    ("dtype", "right", "wrong"),
    [
        (np.float32, 1e-6, 1e-4),
        (np.float16, 1e-3, 1e-2),
        (ml_dtypes.bfloat16, 1e-2, 1e-1),
        (ml_dtypes.float8_e5m2, 1e-1, 1.0),
    ],
)
def test_the_tolerance_is_that_of_the_dtype(dtype, right, wrong):
    x = np.full((2, 3), 0.5).astype(dtype)

    def off_by(error):
        return lambda a: (a.astype(np.float64) * (1 + error)).astype(dtype)

    assert check(off_by(right), lambda a: a, x)
    assert not check(off_by(wrong), lambda a: a, x)
    assert not check(off_by(right), lambda a: a, x, rtol=0, atol=0) or dtype is not np.float32


@given(
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    st.lists(st.floats(0.25, 64), min_size=1, max_size=8),
    st.lists(st.integers(-1, 1), min_size=8, max_size=8),
    st.sampled_from([5, 100, 10_000]),
    st.data(),
)
@settings(max_examples=2 * settings.default.max_examples)
def test_what_rounding_allows_is_right_and_what_is_off_is_found(dtype, values, ulps, far, data):
    x = np.array([values]).astype(dtype)
    allowed = tolerance([x.dtype])
    bits = x.view(f"u{x.itemsize}")
    rounded = (bits + np.array(ulps[: len(values)])).astype(bits.dtype).view(dtype)
    assert compare(rounded, x, *allowed) is None
    at = data.draw(st.integers(0, len(values) - 1))
    wrong = x.copy()
    unit = float(ml_dtypes.finfo(dtype).eps)
    wrong[0, at] = (1 + far * max(4 * unit, 1e-5)) * float(x[0, at])
    difference = compare(wrong, x, *allowed)
    assert [tuple(place) for place in np.argwhere(difference.wrong)] == [(0, at)]


@pytest.mark.parametrize("digits", [7, 8, 9])
def test_values_are_shown_with_digits_enough_to_differ(digits):
    x = np.full((1, 2), 8 / 3)
    verdict = check(lambda a: a + 10.0**-digits, lambda a: a, x, rtol=0, atol=0)
    got, expected = re.search(
        r"\[0, 0\]: ([\d.]+), and should be ([\d.]+)\.", verdict.message
    ).groups()
    assert got != expected


def test_a_zero_is_shown_without_a_sign():
    verdict = check(lambda a: a + 1, lambda a: a, np.full((1, 2), -0.0))
    assert "[0, 0]: 1, and should be 0." in verdict.message


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'torch_xla'"),
        RuntimeError("NRT: nrt_init failed: Logical Neuron Core(s) not available"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_the_answers_fault_is_raised_again(error):
    def answer(x):
        raise error

    with pytest.raises(type(error)):
        check(answer, double, X)


def test_a_wrong_kernel_of_the_page_is_not_launched_on_a_device(monkeypatch):
    @exercise(((3, 4),), lines=1, breaks="# too " + "far")
    def twice(x):
        return 2 * x

    def answer(x):
        return 2 * x  # too far

    assert twice.check(answer)
    monkeypatch.setattr(kernels, "backend", "neuronxcc")
    verdict = twice.check(answer)
    assert not verdict
    assert "not launched" in verdict.message


def test_integers_have_no_tolerance():
    assert compare(np.int32([1000001]), np.int32([1000000]), rtol=1e-3, atol=1).index == (0,)


def test_the_second_output_is_compared_too():
    verdict = check(lambda x: (x, x + 1), lambda x: (x, x), X)
    assert "In output 1, 12 of 12 elements differ" in verdict.message


def test_answers_of_torch_are_compared_as_numpy_arrays():
    torch = pytest.importorskip("torch")
    x = torch.arange(6).reshape(2, 3).to(torch.bfloat16)
    assert check(lambda t: t + t, lambda a: a + a, x)
    assert "should be" in check(lambda t: t + 1, lambda a: a + a, x).message


def test_data_is_the_same_every_time_and_an_answer_cannot_change_it():
    def overwrite(a, b):
        a[:] = 0
        return a + 2 * b

    first = puzzles.scale_add.arguments(((4, 8), (4, 8)))
    again = puzzles.scale_add.arguments(((4, 8), (4, 8)))
    np.testing.assert_array_equal(first, again)
    assert first[0].std() > 0.5
    assert repr(puzzles.scale_add.check(overwrite)) == repr(puzzles.scale_add.check(overwrite))


# -- who reads what


def test_a_kernel_is_followed_from_the_wrong_element_to_what_it_read():
    verdict = check(shifted, double, X)
    assert verdict.index == (0, 1)
    text = " ".join(str(verdict).split())
    assert "This element was written: nl.store(y[:, nl.ds(1, columns - 2)], value=tile[:," in text
    assert "It was computed from x[0, 2]." in text
    assert verdict.picture is not None
    assert "x[0, 2]" in verdict.picture.alt


def test_what_is_read_to_no_purpose_is_named():
    @nki.jit
    def last_block_only(x):
        y = nl.ndarray((4, 2), x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((4, 2), x.dtype, buffer=nl.sbuf)
        for i in nl.sequential_range(3):
            total[...] = nl.load(x[nl.ds(4 * i, 4), :])
        nl.store(y, value=total)
        return y

    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    verdict = check(last_block_only, lambda x: x.reshape(3, 4, 2).sum(axis=0), x)
    assert "It was computed from x[8, 0]." in verdict.details
    assert "x[0:8, 0:2]: read, but not used for the output." in verdict.details


def test_the_solution_is_followed_when_it_reads_something_else():
    @nki.jit
    def without_b(a_input, b_input):
        c = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
        nl.store(c, value=nl.load(a_input))
        return c

    verdict = puzzles.scale_add.check(without_b)
    assert "The solution computes it from a_input[0, 0] and b_input[0, 0]." in verdict.details
    svg = verdict.picture.svg
    ElementTree.fromstring(svg)
    assert "read by the solution" in svg


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5,), (200, 300)])
def test_pictures_of_any_shape_and_size(shape):
    @nki.jit
    def zeros(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        flat = x.reshape((x.size // x.shape[-1], x.shape[-1])) if len(x.shape) != 2 else x
        out = y.reshape(flat.shape) if len(x.shape) != 2 else y
        for start in range(0, flat.shape[0], 100):
            rows = slice(start, min(start + 100, flat.shape[0]))
            nl.store(out[rows], value=nl.load(flat[rows]) * 0)
        return y

    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    verdict = check(zeros, double, x)
    assert verdict.index == (0,) * len(shape)
    assert len(verdict.picture.svg) < 100_000


def test_a_function_that_launches_kernels_gets_the_map_of_its_errors_only():
    verdict = check(lambda x: doubled(x) + np.float32(1), double, X)
    assert verdict.details == ()
    assert "the result" in verdict.picture.svg


# -- what the simulator refuses


@nki.jit
def in_each_others_way(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0), 2)
    nl.store(y[rows, :], value=nl.load(x[rows, :]) * 2)
    return y


@nki.jit
def one_row_too_far(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y[1:4, :], value=nl.load(x))
    return y


@nki.jit
def never_loaded(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf))
    return y


@nki.jit
def sum_over_partitions(x):
    y = nl.ndarray((1, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.sum(nl.load(x), axis=0, keepdims=True))
    return y


def test_a_race_is_drawn_and_its_numbers_are_not_trusted():
    verdict = check(in_each_others_way[2], double, X)
    assert "RaceError" in verdict.message
    assert "A device does not guarantee that." in " ".join(verdict.details)
    assert "Several instances write the same 4 elements." in verdict.details
    assert "instance 0" in verdict.picture.svg
    assert "instance 1" in verdict.picture.svg


def test_a_race_with_wrong_numbers_names_the_first():
    verdict = check(in_each_others_way[2], lambda x: 2 * x + (x == 9), X)
    assert "With the checks off, 1 of 12 elements differ. The first is [2, 1]" in str(verdict)


def test_an_access_that_leaves_its_tensor_is_drawn():
    verdict = check(one_row_too_far, double, X)
    assert "OutOfBoundsError" in verdict.message
    assert "The kernel reaches output[1:4, 0:4], of shape (3, 4)." in verdict.details
    assert "outside of the tensor" in verdict.picture.svg


@pytest.mark.parametrize(
    ("answer", "error"),
    [(never_loaded, "UninitializedReadError"), (sum_over_partitions, "ParameterError")],
)
def test_values_are_not_shown_where_there_are_none(answer, error):
    verdict = check(answer, double, X)
    assert error in verdict.message
    assert "With the checks off" not in str(verdict)
    assert not verdict


# -- modelled time


def test_time_is_modelled_beside_the_solution_and_says_so():
    verdict = puzzles.scale_add.check(solutions.scale_add)
    assert verdict
    assert re.fullmatch(r"Time: \d+ µs, the solution \d+ µs \(modelled\)\.", verdict.cost)


def test_right_numbers_that_take_too_long_are_not_right_yet():
    @nki.jit
    def loads_b_twice(a_input, b_input):
        c = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
        height = min(a_input.shape[0], 128)
        rows = nl.ds(nl.program_id(0) * height, height)
        a, b = nl.load(a_input[rows, :]), nl.load(b_input[rows, :])
        nl.store(c[rows, :], value=a * b * (a + nl.load(b_input[rows, :])))
        return c

    verdict = puzzles.product_of_sum.check(loads_b_twice)
    assert not verdict
    assert "the numbers are right; the time should be at most" in verdict.message
    assert puzzles.product_of_sum.check(solutions.product_of_sum)


def test_every_launch_counts():
    twice = check(lambda x: doubled(doubled(x)), lambda x: 4 * x, X)
    once = check(doubled, double, X)
    us = [int(re.search(r"(\d+) µs", v.cost)[1]) for v in (once, twice)]
    assert us[1] == pytest.approx(2 * us[0], abs=1)


def test_jax_is_asked_what_it_compiled():
    jax = pytest.importorskip("jax")

    def both(x):
        return doubled(x) + doubled(x + 1)

    found = check(jax.jit(both), lambda x: 4 * x + 2, jax.numpy.asarray(X))
    once = check(doubled, double, X)
    us = [int(re.search(r"(\d+) µs", v.cost)[1]) for v in (once, found)]
    assert found
    assert us[1] == pytest.approx(2 * us[0], abs=1)


# -- without nkisim


def test_on_a_neuron_instance_values_are_compared_and_the_rest_is_said_to_be_missing(monkeypatch):
    monkeypatch.setattr(kernels, "backend", "neuronxcc")
    verdict = check(off_in_one_place, double, X)
    assert verdict.index == (1, 2)
    assert verdict.picture is None
    assert "No picture and no modelled time" in verdict.cost
    assert "neuronxcc runs" in str(verdict)
    assert check(double, double, X)
    assert "ZeroDivisionError" in check(lambda x: 1 / 0, double, X).message


# -- display


def test_an_exercise_shows_what_is_asked():
    text = repr(puzzles.add_any_shape)
    assert text.startswith("add_any_shape, about 1 line\ndef add_any_shape(a, b):")
    assert text.endswith("return a + b")
    assert "```python\ndef add_any_shape" in puzzles.add_any_shape._repr_markdown_()


def test_a_verdict_on_a_page_is_text_and_picture():
    verdict = check(shifted, lambda x: 2 * x + 0, X)
    page = verdict._repr_html_()
    assert "<svg" in page
    assert "value=tile[:, nl.ds(2, columns - 2)]" in page
    refused = check(lambda x: f"{1 < 2}" + 1, double, X)
    assert "<svg" not in refused._repr_html_()
    assert all(len(line) <= 78 for line in str(verdict).splitlines())


@pytest.mark.parametrize(
    ("answer", "said"),
    [(3, "3 µs, which is too small."), (10, "10 µs, which is too large."), ("nine", "'nine' µs.")],
)
@pytest.mark.parametrize("reveal", [True, False])
def test_a_wrong_number_has_its_unit_and_a_hint(answer, said, reveal):
    @exercise((3,), lines=1, reveal=reveal, unit="µs", hint="Area, not length.")
    def square(n):
        return n * n

    if reveal:
        said = f"{said.split(' µs')[0]}, and should be 9 µs."
    verdict = square.check(lambda n: answer)
    assert verdict.message == f"your answer is {said} Hint: Area, not length."
    assert square.check(lambda n: n**2)


# -- what is no kernel's work


@nki.jit
def same(x):
    return x


def test_numbers_that_no_kernel_computed_are_told():
    """In an exercise they are not right; with a specification of one's own it is said."""
    verdict = puzzles.scale_add.check(lambda a, b: puzzles.scale_add.spec(a, b))
    assert not verdict
    assert "no kernel instruction was issued" in verdict.message
    verdict = check(double, double, X)
    assert verdict
    assert "no kernel instruction was issued" in verdict.message
    assert "no kernel instruction" not in str(check(doubled, double, X))
    verdict = check(same, lambda x: x, X)
    assert not verdict
    assert "an argument as it came" in verdict.message


def test_a_kernel_that_returns_its_argument_is_told_so():
    verdict = check(same, double, X)
    assert not verdict
    assert verdict.details[0].startswith("The kernel returns its argument x as it came.")
    assert "No instruction writes" not in str(verdict)

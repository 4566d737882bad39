"""A verdict is right only for the right answer, and points at the first wrong element."""

import numpy as np
import pytest

from kernels.exercise import check

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def double(x):
    return 2 * x


def off_in_one_place(x):
    y = 2 * x
    y[1, 2] += 1
    return y


def test_the_reference_itself_is_right():
    verdict = check(double, double, X)
    assert verdict
    assert repr(verdict) == "Right: all 12 elements agree."


def test_the_first_wrong_element_is_named_with_both_values():
    verdict = check(off_in_one_place, double, X)
    assert not verdict
    assert "1 of 12 elements differ" in verdict.message
    assert "[1, 2]: 13, and should be 12" in verdict.message


@pytest.mark.parametrize(
    ("candidate", "says"),
    [
        (lambda x: None, "returns None"),
        (lambda x: x[:2], "shape is (2, 4)"),
        (lambda x: 2 * x.astype(np.float64), "dtype is float64"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_other_failures_say_what_they_are(candidate, says):
    verdict = check(candidate, double, X)
    assert not verdict
    assert says in verdict.message


def test_nan_equals_nan_and_tolerance_is_off_by_default():
    with_nan = np.array([[np.nan, 1.0]], np.float32)
    assert check(lambda x: x, lambda x: x, with_nan)
    assert not check(lambda x: x + np.float32(1e-6), lambda x: x, with_nan)
    assert check(lambda x: x + np.float32(1e-6), lambda x: x, with_nan, rtol=1e-5)


def test_answers_of_torch_are_compared_as_numpy_arrays():
    torch = pytest.importorskip("torch")
    x = torch.arange(6).reshape(2, 3).to(torch.bfloat16)
    assert check(lambda t: t + t, lambda a: a + a, x)
    assert "should be" in check(lambda t: t + 1, lambda a: a + a, x).message

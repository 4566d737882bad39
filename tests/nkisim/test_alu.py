"""Every operator over every pair of types, run in kernels, against references written out here.

The rule: compute in fp32, integers too, and round or convert once on output, to the nearest number
that the type holds (NKI API common fields). Two exceptions: bit operators, and add, subtract and
multiply of 32-bit integers, which GpSimd does in integers that wrap around (nisa.tensor_tensor).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import DTypeError
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.dtypes import (
    FLOATS,
    INTEGERS,
    SUPPORTED,
    bfloat16,
    float8_e4m3,
    float16,
    promote,
)
from nkisim.numerics import alu
from nkisim.runtime.kernel import Kernel

TYPES = sorted(SUPPORTED, key=str)
BOOL = np.dtype(bool)
F32 = np.dtype(np.float32)

ARITH = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": lambda x, y: np.where(x >= y, x, y),
    "minimum": lambda x, y: np.where(x <= y, x, y),
    "mod": lambda x, y: x % y,
    "fmod": lambda x, y: np.sign(x) * (abs(x) % abs(y)),
}
COMPARE = {
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: (x != 0) & (y != 0),
    "logical_or": lambda x, y: (x != 0) | (y != 0),
    "logical_xor": lambda x, y: (x != 0) ^ (y != 0),
}
BITS = {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}
UNARY = {
    "negative": lambda x: -x,
    "abs": abs,
    "square": lambda x: x * x,
    "relu": lambda x: np.where(x > 0, x, 0),
    "sign": np.sign,
}
ROUND = {
    "floor": lambda x: -((-x) // 1),
    "ceil": lambda x: -((-x) // 1),
    "trunc": lambda x: np.sign(x) * (abs(x) // 1),
}
ROUND["floor"] = lambda x: x // 1


def samples(dtype, seed, n=24):
    """(4, n) values of a type: ordinary ones, and for integers the extremes."""
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, (4, n)).astype(bool)
    if dtype in FLOATS:
        values = rng.normal(scale=3, size=(4, n)).astype(np.float32)
        values[0, :4] = [0.0, -0.0, 1.0, 240.0]
        return values.astype(dtype)
    info = np.iinfo(dtype)
    values = rng.integers(-9, 10, (4, n)) % (info.max + 1) if info.min == 0 else None
    values = rng.integers(-9, 10, (4, n)) if values is None else values
    values[0, :4] = [info.min, info.max, 0, 1]
    values[1, :4] = [info.max, info.min, info.max, 2]
    return values.astype(dtype)


def reference(fn, out, *arrays, integers=False):
    """`fn` in fp32, rounded once to the nearest number of the output type; or exactly in int64, of
    which the output has the low bits."""
    with np.errstate(all="ignore"):
        result = np.asarray(fn(*(a.astype(np.int64 if integers else np.float32) for a in arrays)))
        if result.dtype != bool and not integers and out in INTEGERS:
            info = np.iinfo(out)
            result = np.clip(np.rint(result.astype(np.float64)), info.min, info.max)
        return result.astype(out)


def in_integers(name, *dtypes):
    wide = {np.dtype(np.int32), np.dtype(np.uint32)}
    return name in ("add", "subtract", "multiply") and wide.issuperset(dtypes)


def run(names, *arrays):
    """Each operator of `names` over the arrays, in one kernel."""

    @Kernel
    def kernel(*arguments):
        tiles = [nl.load(a) for a in arguments]
        results = []
        for name in names:
            tile = getattr(nl, name)(*tiles)
            out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
            results.append(out)
        return results

    return dict(zip(names, kernel(*arrays), strict=True))


def check(got, want, name):
    assert got.dtype == want.dtype, name
    f = np.float64
    np.testing.assert_array_equal(got.astype(f), want.astype(f), err_msg=name)


def divisors(y):
    """Without zeros, which have no remainder."""
    return np.where(y.astype(np.float32) == 0, np.ones_like(y), y)


@pytest.mark.parametrize("b", TYPES, ids=str)
@pytest.mark.parametrize("a", TYPES, ids=str)
def test_binary_operators(a, b):
    x, y = samples(a, 1), divisors(samples(b, 2))
    out = promote(a, b)
    if out == BOOL:
        out = np.dtype(np.uint8)
    names = list(ARITH)
    # The remainder of a float by a float depends on the last bit of each: one formula for both
    # signs is not exact. Of integers that fp32 holds it is.
    exact = all(d not in FLOATS and d.itemsize < 4 for d in (a, b))
    results = run([*names, *COMPARE], x, y)
    for name, fn in ARITH.items():
        if exact or name not in ("mod", "fmod"):
            integers = in_integers(name, a, b, out)
            check(results[name], reference(fn, out, x, y, integers=integers), name)
    for name, fn in COMPARE.items():
        check(results[name], reference(fn, BOOL, x, y), name)


@pytest.mark.parametrize("b", [float16, bfloat16, np.float32, np.int16], ids=str)
@pytest.mark.parametrize("a", [float16, bfloat16, np.float32, np.int8], ids=str)
def test_remainders_of_floats(a, b):
    x, y = samples(np.dtype(a), 1), divisors(samples(np.dtype(b), 2))
    out = promote(np.dtype(a), np.dtype(b))
    results = run(["mod", "fmod", "divide"], x, y)
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    tol = {"rtol": 2e-2, "atol": 2e-2} if out != F32 else {"rtol": 1e-5, "atol": 1e-5}
    # Compared modulo y: a quotient that is nearly an integer may round either way.
    for name, theirs in (("mod", np.mod(x64, y64)), ("fmod", np.fmod(x64, y64))):
        off = np.abs(results[name].astype(np.float64) - theirs)
        off = np.minimum(off, np.abs(off - np.abs(y64)))
        np.testing.assert_array_less(off, tol["atol"] * 10 * np.maximum(1, np.abs(y64)))
    assert results["divide"].dtype == out
    quotient = x64 / y64 if out in FLOATS else np.trunc(x64 / y64)
    np.testing.assert_allclose(
        results["divide"].astype(np.float64), quotient, rtol=tol["rtol"], atol=1e-6
    )


@pytest.mark.parametrize("a", [np.float32, np.int16])
def test_quotients_in_an_integer_type_are_rounded_where_an_operand_is_a_float(a):
    x, y = np.array([[7, -7, 9, 11]], a), np.array([[2.5, 2.5, 4, 4]], np.float32)

    @Kernel
    def divide(x, y):
        out = nl.ndarray(x.shape, np.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.divide(nl.load(x), nl.load(y), dtype=np.int32))
        return out

    np.testing.assert_array_equal(divide(x, y), [[3, -3, 2, 3]])


@pytest.mark.parametrize("a", TYPES, ids=str)
def test_unary_operators(a):
    x = samples(a, 3)
    out = np.dtype(np.uint8) if a == BOOL else a
    results = run(list(UNARY), x)
    for name, fn in UNARY.items():
        check(results[name], reference(fn, out, x), name)
    check(run(["logical_not"], x)["logical_not"], x.astype(np.float32) == 0, "logical_not")


@pytest.mark.parametrize("a", sorted(FLOATS & SUPPORTED, key=str), ids=str)
def test_rounding_operators(a):
    x = samples(a, 4)
    results = run(list(ROUND), x)
    for name, fn in ROUND.items():
        check(results[name], reference(fn, a, x), name)


@pytest.mark.parametrize("b", sorted(INTEGERS, key=str), ids=str)
@pytest.mark.parametrize("a", sorted(INTEGERS, key=str), ids=str)
def test_bit_operators(a, b):
    x, y = samples(a, 5), samples(b, 6)
    out = promote(a, b)
    if out == F32 and a.itemsize != b.itemsize:  # no common integer type, and floats have no bits
        with pytest.raises(DTypeError):
            run(list(BITS), x, y)
        return
    results = run(list(BITS), x, y)
    if out == F32:  # int32 with uint32: the same bits
        out, y = a, y.astype(a)
    for name, fn in BITS.items():
        check(results[name], reference(fn, out, x, y, integers=True), name)


@pytest.mark.parametrize("a", sorted(INTEGERS, key=str), ids=str)
def test_shifts_and_invert(a):
    x = samples(a, 7)
    y = np.random.default_rng(8).integers(0, 7, x.shape).astype(a)
    results = run(["left_shift", "right_shift"], x, y)
    shifted = reference(lambda p, q: p << q, a, x, y, integers=True)
    check(results["left_shift"], shifted, "left_shift")
    bits = np.dtype(f"u{a.itemsize}")  # the engines shift zeros in: no sign is kept
    check(results["right_shift"], (x.view(bits) >> y.view(bits)).view(a), "right_shift")
    check(run(["invert"], x)["invert"], ~x, "invert")


def test_bool_is_inverted_as_a_truth_value():
    x = np.array([[True, False, True]])
    np.testing.assert_array_equal(run(["invert"], x)["invert"].astype(bool), ~x)


@pytest.mark.parametrize("name", [*BITS, "left_shift", "right_shift"])
def test_bit_operators_refuse_floats(name):
    x = np.ones((2, 2), np.float32)
    with pytest.raises(DTypeError, match="float32 operand"):
        run([name], x, x)
    with pytest.raises(DTypeError, match="bfloat16 operand"):
        run([name], x.astype(np.int32), x.astype(bfloat16))


@pytest.mark.parametrize("name", ["mod", "fmod", "divide"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_division_by_zero_does_not_stop_the_program(name, dtype):
    run([name], np.ones((2, 2), dtype), np.zeros((2, 2), dtype))


# -- powers


def test_power_of_floats():
    x, y = np.abs(samples(F32, 9)) % 10 + 0.1, samples(F32, 10) % 3
    got = run(["power"], x, y)["power"]
    np.testing.assert_allclose(got, x.astype(np.float64) ** y.astype(np.float64), rtol=1e-4)


def test_power_of_integers():
    x = np.arange(-4, 4, dtype=np.int32).reshape(2, 4)
    y = np.full_like(x, 3)
    np.testing.assert_array_equal(run(["power"], x, y)["power"], x**3)


def test_negative_power_of_an_integer():
    # NumPy refuses it. In integers the result is 0 but for 1 and -1.
    x = np.array([[1, 2, -1, 3]], np.int32)
    got = run(["power"], x, np.full_like(x, -1))["power"]
    np.testing.assert_array_equal(got, [[1, 0, -1, 0]])


def test_32_bit_integers_have_powers_that_wrap_around_and_negative_ones():
    x = np.array([3, -2, 7, 46341, 2, 1, -1], np.int32)
    y = np.array([21, 31, 11, 2, -2, -5, -3], np.int32)
    out = np.empty_like(x)
    alu.bind("power", out.dtype, (x.dtype, y.dtype), native=True)(out, x, y)
    exact = [int(a) ** int(b) for a, b in zip(x[:4], y[:4], strict=True)]
    np.testing.assert_array_equal(out, np.array([*exact, 0, 1, -1]).astype(np.int32))


# -- transcendental functions


REAL = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
LARGEST = {"sin": 3.0, "arctan": 1.5}  # in the ranges of the Scalar Engine


@pytest.mark.parametrize("dtype", [np.float32, bfloat16, np.int16], ids=str)
def test_functions_are_computed_in_fp32_and_rounded_once(dtype):
    values = np.abs(samples(np.dtype(dtype), 11)).astype(np.float32)
    for name, fn in REAL.items():
        x = np.clip(values, 1, LARGEST.get(name, 8)).astype(dtype)
        got, want = run([name], x)[name], fn(x.astype(np.float64))
        assert got.dtype == dtype, name
        if dtype == np.int16:  # integers stay integers, and lose the fraction
            np.testing.assert_array_less(np.abs(got - want), 1 + 1e-5)
            continue
        # One rounding of an accurate fp32 value: within one unit of the output type.
        step = 2.0**-7 if dtype == bfloat16 else 1e-5
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=step, atol=1e-5, err_msg=name)


def test_bf16_sums_round_once():
    # 1 + 2^-8 is a tie in bf16: rounding an fp32 sum goes to even, down to 1.
    one = np.ones((1, 2), bfloat16)
    tiny = np.array([[2.0**-8, 3 * 2.0**-8]], bfloat16)
    got = run(["add"], one, tiny)["add"].astype(np.float32)
    np.testing.assert_array_equal(got, [[1.0, 1.0 + 2.0**-6]])


def test_a_chain_in_fp32_does_not_round_between():
    # dtype= keeps the wide value: (x + y) - x is lost in bf16 and kept in fp32.
    @Kernel
    def chain(x, y):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        nl.store(out, nl.subtract(nl.add(a, b, dtype=nl.float32), a, dtype=nl.float32))
        return out

    x, y = np.full((1, 1), 256, bfloat16), np.full((1, 1), 0.5, bfloat16)
    assert chain(x, y)[0, 0] == 0.5


# -- outputs of another type


@pytest.mark.parametrize("out", TYPES, ids=str)
@pytest.mark.parametrize(
    "a", [*map(np.dtype, [np.float32, bfloat16, np.int32, np.int8, np.uint16]), BOOL], ids=str
)
def test_results_in_a_given_type(a, out):
    x, y = samples(a, 12), samples(a, 13)

    @Kernel
    def add(x, y):
        result = nl.ndarray(x.shape, out, buffer=nl.shared_hbm)
        nl.store(result, nl.add(nl.load(x), nl.load(y), dtype=out))
        return result

    got = add(x, y)
    integers = in_integers("add", a, out)
    check(got, reference(lambda p, q: p + q, out, x, y, integers=integers), "add")


def test_products_of_narrow_integers_in_a_wider_type():
    x = np.array([[100, -100, 7, 0]], np.int8)

    @Kernel
    def square(x):
        outs = []
        for dtype in (nl.float32, nl.int32, nl.bfloat16):
            out = nl.ndarray(x.shape, dtype, buffer=nl.shared_hbm)
            tile = nl.load(x)
            nl.store(out, nl.multiply(tile, tile, dtype=dtype))
            outs.append(out)
        return outs

    for got in square(x):
        np.testing.assert_array_equal(got, np.square(x.astype(np.float32)).astype(got.dtype))


# -- scalars


@pytest.mark.parametrize("scalar", [2, 1.5, True, np.int8(3), np.float16(0.1), bfloat16(0.1)])
@pytest.mark.parametrize("a", [np.int8, np.uint8, float16, bfloat16, np.float32, float8_e4m3])
@pytest.mark.parametrize("swap", [False, True])
def test_scalars_take_part_in_promotion(a, scalar, swap):
    x = samples(np.dtype(a), 14)
    weak = {bool: np.uint8, int: np.int32, float: np.float32}
    value = np.asarray(scalar, weak.get(type(scalar), getattr(scalar, "dtype", None)))

    @Kernel
    def subtract(x):
        tile = nl.load(x)
        tile = nl.subtract(scalar, tile) if swap else nl.subtract(tile, scalar)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    other = np.broadcast_to(value, x.shape)
    pair = (other, x) if swap else (x, other)
    out = promote(x.dtype, value.dtype)
    integers = in_integers("subtract", x.dtype, value.dtype, out)
    check(subtract(x), reference(lambda p, q: p - q, out, *pair, integers=integers), "subtract")


@pytest.mark.parametrize("scalar", [2**32, -(2**31) - 1, np.int64(2**40), np.uint64(2**63)])
def test_integers_of_more_than_32_bits_are_refused(scalar):
    @Kernel
    def add(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + scalar)
        return out

    with pytest.raises(DTypeError, match="32 bits"):
        add(np.zeros((2, 2), np.int32))


def test_an_integer_that_only_uint32_holds_is_one():
    x = np.arange(4, dtype=np.uint32).reshape(2, 2)

    @Kernel
    def high(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, (nl.load(x) + 2**31) + nl.full(x.shape, 2**32 - 1, nl.uint32))
        return out

    np.testing.assert_array_equal(high(x), x + np.uint32(2**31 - 1))


@pytest.mark.parametrize(("mask", "want"), [(0xFF000000, 0xAB000000), (0xFF, 0x12), (-1, None)])
def test_bit_masks_of_uint32(mask, want):
    # By promotion a Python integer is int32, which shares no type with uint32.
    @Kernel
    def select(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) & mask)
        return out

    x = np.array([[0xABCDEF12]], np.uint32)
    assert select(x)[0, 0] == (x[0, 0] if want is None else want)


@pytest.mark.parametrize("scalar", ["1", 1j, b"x"])
def test_operands_that_are_no_numbers(scalar):
    @Kernel
    def add(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(x), scalar))
        return out

    with pytest.raises(DTypeError, match="neither a tile nor a number"):
        add(np.zeros((2, 2), np.float32))


# -- choosing


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, bfloat16, np.int8], ids=str)
def test_where_keeps_every_bit_of_what_it_chooses(dtype):
    x, y = samples(np.dtype(dtype), 15), samples(np.dtype(dtype), 16)
    if np.dtype(dtype) in INTEGERS:
        x[0, 0] = np.iinfo(dtype).max - 1  # has no exact fp32 value where 32 bits wide
    condition = np.random.default_rng(17).integers(0, 2, x.shape).astype(np.uint8)

    @Kernel
    def choose(c, x, y):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.where(nl.load(c), nl.load(x), nl.load(y)))
        return out

    check(choose(condition, x, y), np.where(condition != 0, x, y), "where")
    condition[0, 0] = 1
    check(choose(condition, x, y), np.where(condition != 0, x, y), "where")


def test_where_with_a_number():
    @Kernel
    def choose(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.store(out, nl.where(t > 0, t, -1.5))
        return out

    x = samples(F32, 18)
    np.testing.assert_array_equal(choose(x), np.where(x > 0, x, np.float32(-1.5)))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_int32_wraps_around(a, b):
    # Directly, without a kernel: what hypothesis can try many times.
    out = np.empty(1, np.int32)
    i32 = np.dtype(np.int32)
    for name, exact in (("add", a + b), ("subtract", a - b), ("multiply", a * b)):
        alu.bind(name, i32, (i32, i32), native=True)(out, np.array([a], i32), np.array([b], i32))
        assert int(out[0]) == (exact + 2**31) % 2**32 - 2**31

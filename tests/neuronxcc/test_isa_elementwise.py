"""tensor_tensor, tensor_scalar, activation and their kin against NumPy in double precision."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import settings

from nkisim.errors import KernelError, MemorySpaceError, ParameterError, ShapeError

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BF16]
few = settings(max_examples=25, deadline=None)


def numbers(shape, dtype=np.float32, low=-3.0, high=3.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(low, high, shape).astype(dtype)


def tolerance(dtype):
    return {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[np.dtype(dtype).name]


def close(got, wanted, dtype=np.float32):
    tol = tolerance(dtype)
    np.testing.assert_allclose(got.astype(float), wanted, rtol=tol, atol=tol)


def test_integers_are_exact_on_gpsimd_and_rounded_to_fp32_on_vector(compute):
    x, y = np.full((2, 3), 2**24, np.int32), np.ones((2, 3), np.int32)
    left_open = compute(lambda s, t: nisa.tensor_tensor(s, t, nl.add), x, y)
    np.testing.assert_array_equal(left_open, x + y)
    asked = compute(lambda s, t: nisa.tensor_tensor(s, t, nl.add, engine=nisa.vector_engine), x, y)
    np.testing.assert_array_equal(asked, (x.astype(np.float32) + y.astype(np.float32)))
    assert (asked != left_open).all()


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", FLOATS)
def test_the_type_of_a_result_is_by_promotion(a, b, compute):
    x, y = numbers((3, 4, 2, 5), a), numbers((3, 4, 2, 5), b, seed=1)
    got = compute(lambda s, t: nisa.tensor_tensor(s, t, nl.add), x, y)
    assert got.dtype == (np.float32 if a != b else a)
    close(got, x.astype(float) + y.astype(float), got.dtype)
    assert compute(lambda t: nisa.activation(nl.tanh, t), x).dtype == a


def test_power_runs_on_gpsimd_and_so_does_integer_addition(compute):
    x, y = numbers((4, 8), low=0.5), numbers((4, 8))
    close(compute(lambda s, t: nisa.tensor_tensor(s, t, nl.power), x, y), x.astype(float) ** y)
    big = np.array([[2**24 + 1, -(2**30)]], np.int32)
    got = compute(lambda s, t: nisa.tensor_tensor(s, t, nl.add), big, np.ones_like(big))
    np.testing.assert_array_equal(got, big + 1)  # exact: not through fp32


@pytest.mark.parametrize("second", [np.int32, np.uint32])
@pytest.mark.parametrize("first", [np.int32, np.uint32])
def test_bits_of_signed_and_unsigned_numbers(first, second, compute):
    x = np.arange(-7, 8, dtype=np.int64).reshape(3, 5).astype(first)
    y = (np.arange(15).reshape(3, 5) * 2**28).astype(second)
    wanted = (x.view(np.uint32) ^ y.view(np.uint32)).view(first)
    for xor in (nl.bitwise_xor, lambda s, t: nisa.tensor_tensor(s, t, op=np.bitwise_xor)):
        got = compute(xor, x, y)
        assert got.dtype == first
        np.testing.assert_array_equal(got, wanted)
    sign = compute(lambda s: nl.bitwise_and(s, 2**31), x)
    np.testing.assert_array_equal(sign.view(np.uint32), x.view(np.uint32) & 2**31)


def test_an_operand_of_one_element_is_spread_as_its_fix_says(compute):
    x, y = numbers((3, 5)), numbers((1, 1), seed=1)
    with pytest.raises(ShapeError, match=r"t.broadcast_to\(\(3, 1\)\)"):
        compute(lambda s, t: nisa.tensor_scalar(s, nl.add, t), x, y)
    got = compute(lambda s, t: nisa.tensor_scalar(s, nl.add, t.broadcast_to((3, 1))), x, y)
    close(got, x.astype(float) + y)
    with pytest.raises(ShapeError, match="slice both to the same partitions"):
        compute(lambda s, t: nisa.tensor_scalar(s, nl.add, t), x, numbers((2, 1)))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32])
def test_bit_operations(name, dtype, compute):
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 100, (5, 7)).astype(dtype), rng.integers(0, 5, (5, 7)).astype(dtype)
    got = compute(lambda s, t: nisa.tensor_tensor(s, t, getattr(np, name)), x, y)
    np.testing.assert_array_equal(got, getattr(np, name)(x, y))
    by_scalar = compute(lambda s: nisa.tensor_scalar(s, getattr(np, name), 3), x)
    np.testing.assert_array_equal(by_scalar, getattr(np, name)(x, dtype(3)))


def test_one_rounding_at_the_end(compute):
    x = np.full((1, 4), 1 + 2**-7, BF16)
    got = compute(
        lambda t: nisa.tensor_scalar(t, nl.multiply, 1 + 2**-8, op1=nl.subtract, operand1=1.0), x
    )
    exact = (1 + 2**-7) * (1 + 2**-8) - 1  # rounding the product to bf16 would lose the last bits
    np.testing.assert_array_equal(got, np.full((1, 4), exact, BF16))


def test_operators_of_one_argument_ignore_their_operand(compute):
    x = numbers((3, 5), low=0.2)
    got = compute(lambda t: nisa.tensor_scalar(t, nl.add, 1.0, op1=nl.rsqrt, operand1=0.0), x)
    close(got, 1 / np.sqrt(x.astype(float) + 1))
    close(compute(lambda t: nisa.tensor_scalar(-t, nl.abs, 0.0), x), x)


def test_in_place_on_an_operand(compute):
    """The result goes over the second operand, which the first step must not disturb."""
    x, y = numbers((8, 16)), numbers((8, 16), seed=1)

    def body(a, b):
        b[...] = nisa.scalar_tensor_tensor(
            data=a, op0=nl.multiply, operand0=2.0, op1=nl.subtract, operand1=b
        )
        return b

    close(compute(body, x, y), 2.0 * x.astype(float) - y)


def test_tiles_too_large_for_one_pass(compute):
    x = numbers((128, 2000))
    got = compute(lambda t: nisa.activation(nl.silu, t, scale=0.5), x)
    half = x.astype(float) / 2
    close(got, half / (1 + np.exp(-half)))

    def shift(t):
        t[:, 0:1999] = nisa.activation(nl.silu, t[:, 1:2000], scale=0.5)
        return t

    close(compute(shift, x)[:, :-1], (half / (1 + np.exp(-half)))[:, 1:])


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "max", "min"])
@pytest.mark.parametrize("shape", [(6, 10), (5, 3, 4)])
def test_tensor_scalar_reduce(op, shape, compute):
    x = numbers(shape)

    def body(t):
        res = nl.ndarray((shape[0], 1), dtype=nl.float32)
        out = nisa.tensor_scalar_reduce(
            data=t, op0=nl.multiply, operand0=0.5, reduce_op=getattr(nl, op), reduce_res=res
        )
        return out, res

    out, res = compute(body, x)
    close(out, x.astype(float) / 2)
    rows = x.astype(float).reshape(shape[0], -1) / 2
    reduce = {
        "add": lambda r: r.sum(1),
        "subtract": lambda r: r[:, 0] - r[:, 1:].sum(1),
        "multiply": lambda r: r.prod(1),
        "max": lambda r: r.max(1),
        "min": lambda r: r.min(1),
    }[op]
    close(res[:, 0], reduce(rows))


def test_activation_accumulates_over_calls(compute):
    x = numbers((7, 12))

    def body(t):
        res = nl.ndarray((7, 1), dtype=nl.float32)
        nisa.activation(
            nl.exp, t[:, 0:4], reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce
        )
        nisa.activation(nl.exp, t[:, 4:8], reduce_op=np.add, reduce_cmd=nisa.reduce_cmd.reduce)
        nisa.activation(
            nl.exp, t[:, 8:12], reduce_op=nl.add, reduce_res=res, reduce_cmd=nisa.reduce_cmd.reduce
        )
        return res

    close(compute(body, x), np.exp(x.astype(float)).sum(1, keepdims=True))


def test_activation_reduce_sums_what_was_not_yet_rounded(compute):
    x = np.full((2, 512), 1 / 3, BF16)

    def body(t):
        res = nl.ndarray((2, 1), dtype=nl.float32)
        out = nisa.activation_reduce(nl.square, t, reduce_op=nl.add, reduce_res=res, scale=1.5)
        return out, res

    out, res = compute(body, x)
    exact = (1.5 * float(x[0, 0])) ** 2
    np.testing.assert_allclose(res, 512 * exact, rtol=1e-6)
    assert abs(float(out[0, 0]) - exact) > 1e-6 * exact  # the tile itself is rounded to bf16


def test_reset_clears_the_accumulators(compute):
    x = numbers((3, 4))

    def body(t):
        res = nl.ndarray((3, 1), dtype=nl.float32)
        nisa.activation(nl.copy, t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(nl.copy, t, reduce_cmd=nisa.reduce_cmd.reset, reduce_res=res)
        return res

    np.testing.assert_array_equal(compute(body, x), np.zeros((3, 1)))


def test_accumulating_without_a_reset_is_refused(compute):
    def body(t):
        res = nl.ndarray((3, 1), dtype=nl.float32)
        nisa.activation(
            nl.exp, t, reduce_op=nl.add, reduce_res=res, reduce_cmd=nisa.reduce_cmd.reduce
        )
        return res

    with pytest.raises(KernelError, match="accumulators"):
        compute(body, numbers((3, 4)))


X, Y = numbers((4, 8)), numbers((4, 6))


def vector(value=1.0, dtype=nl.float32, rows=4):
    return nl.full((rows, 1), value, dtype=dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [((5, 12), (5, 1)), ((5, 1), (5, 12)), ((5, 3, 4), (5, 1, 4)), ((5, 3, 1), (5, 1, 4))],
)
def test_tensor_tensor_repeats_free_axes_of_size_1(compute, a, b):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in (a, b))
    got = compute(lambda t, u: nisa.tensor_tensor(t, u, nl.subtract), x, y)
    np.testing.assert_array_equal(got, x - y)


@pytest.mark.parametrize(
    ("a", "b"),
    [((5, 3, 4), (5, 1)), ((5, 1), (5, 3, 4)), ((5, 12, 1), (5, 12)), ((5, 3, 4), (5, 12))],
)
def test_tensor_tensor_goes_by_the_elements_of_a_partition(compute, a, b):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in (a, b))
    got = compute(lambda t, u: nisa.tensor_tensor(t, u, nl.subtract), x, y)
    shape = a if np.prod(a) >= np.prod(b) else b
    wide = [z.reshape(shape if z.size > 5 else (5, *[1] * (len(shape) - 1))) for z in (x, y)]
    np.testing.assert_array_equal(got, wide[0] - wide[1])


@pytest.mark.parametrize(("a", "b"), [((5, 12), (5, 6)), ((5, 12), (1, 12)), ((5, 3, 4), (5, 3))])
def test_tensor_tensor_repeats_nothing_else(compute, a, b):
    with pytest.raises(ShapeError, match="same partitions"):
        compute(
            lambda t, u: nisa.tensor_tensor(t, u, nl.add),
            *(np.ones(shape, np.float32) for shape in (a, b)),
        )


ADD, AND = nl.add, nl.bitwise_and
# fmt: off
REFUSED = {
    "no such operator": (lambda t, u: nisa.tensor_tensor(t, t, np.divide), ParameterError,
        "operator divide"),
    "activation as operator": (lambda t, u: nisa.tensor_tensor(t, t, nl.exp), ParameterError,
        "operator exp"),
    "scalar engine": (lambda t, u: nisa.tensor_tensor(t, t, ADD, engine=nisa.scalar_engine),
        ParameterError, "vector or"),
    "power on the vector engine": (
        lambda t, u: nisa.tensor_tensor(t, t, nl.power, engine=nisa.vector_engine), ParameterError,
        "power on the GpSimd"),
    "op1 alone": (lambda t, u: nisa.tensor_scalar(t, ADD, 1.0, op1=ADD), ParameterError,
        "operand1"),
    "mixed kinds": (lambda t, u: nisa.tensor_scalar(t, ADD, 1, op1=AND, operand1=1), ParameterError,
        "both are arithmetic"),
    "tensor_scalar on scalar engine": (
        lambda t, u: nisa.tensor_scalar(t, ADD, 1.0, engine=nisa.scalar_engine), ParameterError,
        "NeuronCore-v3"),
    "reduce_cmd without reduce_op": (
        lambda t, u: nisa.activation(nl.exp, t, reduce_cmd=nisa.reduce_cmd.reset_reduce),
        ParameterError, "without reduce_op"),
    "reduce_res while idle": (
        lambda t, u: nisa.activation(nl.exp, t, reduce_op=ADD, reduce_res=vector()), ParameterError,
        "idle"),
    "memset of a tile": (lambda t, u: nisa.memset((4, 8), t, nl.float32), ParameterError,
        "known while tracing"),
    "memset on the scalar engine": (
        lambda t, u: nisa.memset((4, 8), 1, nl.float32, engine=nisa.scalar_engine), ParameterError,
        "vector or"),
}
# fmt: on


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case, compute):
    body, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        compute(body, X, Y)


def test_hbm_operands_are_refused():
    import neuronxcc.nki as nki

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_scalar(x, nl.add, 1.0))
        return out

    with pytest.raises(MemorySpaceError, match=r"nl\.load"):
        kernel(X)


def test_the_target_decides_what_is_allowed(compute):
    got = compute(
        lambda t: nisa.tensor_scalar(
            t, nl.multiply, 2.0, op1=ADD, operand1=1.0, engine=nisa.scalar_engine
        ),
        X,
        target="trn2",
    )
    close(got, 2.0 * X + 1)
    seen = []
    compute(lambda t: (seen.append(nisa.get_nc_version()), t)[1], X)
    compute(lambda t: (seen.append(nisa.get_nc_version()), t)[1], X, target="trn2")
    assert seen == [nisa.nc_version.gen2, nisa.nc_version.gen3]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("every", "few"), [(4, 2), (4, 4), (5, 2), (8, 4), (3, 3)])
def test_a_few_neighbours_of_each_group(dtype, every, few, compute):
    """Short last axes that do not join the axis before, in each operand and in the result."""
    x, y = numbers((6, 9, every), dtype), numbers((6, 9, every), dtype, seed=1)

    def body(s, t):
        out = nl.zeros((6, 9, every), dtype=dtype, buffer=nl.sbuf)
        out[:, :, every - few :] = nisa.tensor_tensor(
            s[:, :, :few], t[:, :, every - few :], nl.subtract
        )
        return out

    wanted = np.zeros((6, 9, every))
    wanted[..., every - few :] = x[..., :few].astype(float) - y[..., every - few :].astype(float)
    close(compute(body, x, y), wanted, dtype)


def test_gpsimd_does_not_write_psum(compute):
    def body(t, apart):
        target = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.psum)
        if apart:  # the copy is another instruction, of another engine
            made = nisa.tensor_copy(t, engine=nisa.gpsimd_engine)
            target[...] = made
        else:
            target[...] = nisa.tensor_copy(t, engine=nisa.gpsimd_engine)
        return nl.copy(target)

    x = numbers((4, 8))
    np.testing.assert_array_equal(compute(lambda t: body(t, apart=True), x), x)
    with pytest.raises(MemorySpaceError, match="is to write"):
        compute(lambda t: body(t, apart=False), x)

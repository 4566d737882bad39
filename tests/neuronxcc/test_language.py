"""`nki.language`: making tensors, loading and storing, loops, and how operators lower."""

from __future__ import annotations

import numpy as np
import pytest

from nkisim.errors import ParameterError, ShapeError, TileSizeError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.instruction import Engine
from nkisim.numerics.program import TensorSpec
from nkisim.runtime.kernel import Kernel


def numbers(*shape, dtype=np.float32):
    return (np.arange(int(np.prod(shape))) % 7 - 3).reshape(shape).astype(dtype)


def run(body, *arrays, **launch):
    """What `body` makes of the loaded arrays, as an array."""
    return kernel_of(body)(*arrays)


def kernel_of(body):
    @Kernel
    def kernel(*arrays):
        tile = body(*(nl.load(a) for a in arrays))
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return kernel


def instructions(body, *arrays):
    return kernel_of(body).specialize(arrays, {}).program.instructions


def opcodes(body, *arrays):
    return [i.opcode for i in instructions(body, *arrays)]


# -- limits and names


def test_tile_sizes_of_the_documentation():
    sizes = nl.tile_size
    assert (sizes.pmax, sizes.psum_fmax) == (128, 512)
    assert (sizes.gemm_stationary_fmax, sizes.gemm_moving_fmax) == (128, 512)
    assert sizes.bn_stats_fmax == 512


def test_every_name_it_lists_exists():
    for name in nl.__all__:
        assert getattr(nl, name) is not None


# -- making tensors


@pytest.mark.parametrize("space", [nl.sbuf, nl.psum, None])
@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.int32, nl.uint8, nl.bool_], ids=str)
def test_filled_tiles(space, dtype):
    shape = (3, 5)
    for make, value in (
        (lambda: nl.zeros(shape, dtype, buffer=space), 0),
        (lambda: nl.ones(shape, dtype, buffer=space), 1),
        (lambda: nl.full(shape, 3, dtype, buffer=space), 3),
        (lambda: nl.zeros_like(nl.ones(shape, dtype), buffer=space), 0),
    ):
        got = run(lambda _, make=make: nl.copy(make()), numbers(1, 1))
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(got.astype(float), np.full(shape, value, dtype).astype(float))


def test_like_takes_shape_and_type():
    def body(x):
        a = nl.empty_like(x)
        b = nl.zeros_like(x, dtype=nl.int8)
        assert (a.shape, a.dtype, b.shape, b.dtype) == ((3, 5), nl.float16, (3, 5), nl.int8)
        return b

    run(body, numbers(3, 5, dtype=np.float16))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [200, -1, 2.75, -1e9, float("nan")])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16])
def test_fill_values_are_converted(value, dtype):
    # Integers give their bits, floats round to the nearest even and saturate.
    if dtype is not np.float16 and isinstance(value, float):
        info = np.iinfo(dtype)
        want = 0 if value != value else min(max(round(value), info.min), info.max)
    elif dtype is not np.float16:
        want = value % 2 ** np.iinfo(dtype).bits
        want -= 2 ** np.iinfo(dtype).bits if want > np.iinfo(dtype).max else 0
    else:
        with np.errstate(over="ignore"):
            want = np.float16(value)
    got = run(lambda _: nl.full((1, 2), value, dtype), numbers(1, 1))
    np.testing.assert_array_equal(got, np.full((1, 2), want, dtype))


def test_a_tensor_with_block_axes_is_filled_tile_by_tile():
    """Each tile has an instruction of its own, and holds the value."""

    @Kernel
    def kernel(x):
        out = nl.ndarray((2, 3, 4, 5), x.dtype, buffer=nl.shared_hbm)
        tiles = nl.full((2, 3, nl.par_dim(4), 5), 7, x.dtype)
        for i in range(2):
            for j in range(3):
                nl.store(out[i, j], tiles[i, j])
        return out

    x = numbers(1, 1)
    np.testing.assert_array_equal(kernel(x), np.full((2, 3, 4, 5), 7))
    made = [i for i in kernel.specialize((x,), {}).program.instructions if i.opcode == "memset"]
    blocks = [(i, j, 0, 0) for i in range(2) for j in range(3)]
    assert [i.outs[0].offsets for i in made] == blocks


# -- loads and stores


def test_loads_and_stores_convert():
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float16, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x, dtype=nl.bfloat16))
        return out

    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(kernel(x), x.astype(nl.bfloat16).astype(np.float16))


def test_a_number_can_be_stored():
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, 0)
        j = nl.arange(4)[None, :]
        nl.store(out[0:1, :], 2.5, mask=j < 2)
        return out

    np.testing.assert_array_equal(kernel(numbers(2, 4)), [[2.5, 2.5, 0, 0], [0, 0, 0, 0]])


def test_a_store_broadcasts():
    @Kernel
    def kernel(row, column):
        out = nl.ndarray((2, 3, 4), row.dtype, buffer=nl.shared_hbm)
        nl.store(out[0], nl.load(row))
        nl.store(out[1], nl.load(column))
        return out

    row, column = numbers(1, 4), numbers(3, 1)
    got = kernel(row, column)
    np.testing.assert_array_equal(got[0], np.broadcast_to(row, (3, 4)))
    np.testing.assert_array_equal(got[1], np.broadcast_to(column, (3, 4)))


@pytest.mark.parametrize(
    "key",
    [np.s_[0:5], np.s_[1:7:2, 3], np.s_[2, 4:9], np.s_[5, 6], np.s_[3]],
    ids=["vector", "column", "row", "element", "all of a row"],
)
def test_one_dimensional_hbm_is_loaded_as_a_column(key):
    x = numbers(7) if key == np.s_[0:5] else numbers(7, 11)
    shapes = []

    @Kernel
    def kernel(x):
        out = nl.ndarray(picked.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[key])
        shapes.append(tile.shape)
        nl.store(out, tile + 1)
        return out

    picked = x[key]
    np.testing.assert_array_equal(kernel(x), picked + 1)
    assert shapes == [(max(picked.size, 1), 1)]


def test_a_loaded_column_is_an_operand_of_each_partition():
    @Kernel
    def kernel(x, a, state):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scale = nl.load(a[0:7, state])
        nl.store(out, nisa.activation(op=nl.exp, data=nl.load(x), scale=scale) + scale)
        return out

    x, a = numbers(7, 11), numbers(7, 3) / 4
    expected = np.exp(x * a[:, 1:2]) + a[:, 1:2]
    np.testing.assert_allclose(kernel(x, a, 1), expected, rtol=1e-6)


def test_a_row_and_a_column_are_stored_into_one_dimensional_hbm():
    @Kernel
    def kernel(x):
        rows = nl.ndarray((2, 9), x.dtype, buffer=nl.shared_hbm)
        columns = nl.ndarray((9, 7), x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in range(2):
            nl.store(rows[i], tile[i])
        for i in range(7):
            nl.store(columns[0:7, i], tile[:, i])
            nl.store(columns[7:9, i], 5)
        return rows, columns

    x = numbers(7, 9)
    rows, columns = kernel(x)
    np.testing.assert_array_equal(rows, x[:2])
    np.testing.assert_array_equal(columns[:7], x[:, :7])
    assert (columns[7:] == 5).all()


def test_a_mask_of_a_one_dimensional_load_and_store():
    @Kernel
    def kernel(x):
        out = nl.ndarray((9,), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, 1)
        inside = nl.arange(9)[:, None] < 7
        nl.store(out, nl.load(x[0:9], mask=inside), mask=inside)
        return out

    x = numbers(7)
    np.testing.assert_array_equal(kernel(x), [*x, 1, 1])


def test_a_long_row_is_no_column():
    @Kernel
    def kernel(x):
        return nl.load(x[0:129])

    with pytest.raises(TileSizeError, match=r"129 elements[^$]*reshape\(\(1, 129\)\)"):
        kernel(numbers(200))


def test_a_store_from_psum_goes_through_sbuf():
    def body(x):
        t = nl.zeros((2, 4), nl.float32, buffer=nl.psum)
        t[...] = x
        return t

    assert opcodes(body, numbers(2, 4))[-2:] == ["tensor_copy", "dma_copy"]
    np.testing.assert_array_equal(run(body, numbers(2, 4)), numbers(2, 4))


def test_masks_that_are_known():
    @Kernel
    def kernel(x, flag):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros(x.shape, x.dtype))
        nl.store(out, nl.load(x), mask=flag)
        return out

    np.testing.assert_array_equal(kernel(numbers(2, 4), True), numbers(2, 4))
    np.testing.assert_array_equal(kernel(numbers(2, 4), False), np.zeros((2, 4)))


@pytest.mark.parametrize("mask", [1, "x", np.ones((2, 4), bool), [True]])
def test_what_is_no_mask(mask):
    @Kernel
    def kernel(x):
        nl.load(x, mask=mask)

    with pytest.raises(ShapeError, match="is not a mask"):
        kernel(numbers(2, 4))


def test_a_masked_operation_keeps_the_rest():
    def body(x):
        i, j = nl.arange(4)[:, None], nl.arange(4)[None, :]
        t = nl.copy(x)
        t[i, j] = nl.copy(t[i, j])
        u = nl.zeros((4, 4), nl.float32)
        u[...] = nl.add(x, 10, mask=j >= i) if False else u
        return nl.where(nl.greater(x, 0), x, u)

    x = numbers(4, 4)
    np.testing.assert_array_equal(run(body, x), np.where(x > 0, x, 0))


# -- operators of Python


@pytest.mark.filterwarnings("ignore:an operator of Python is given:nkisim.NkiWarning")
@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (lambda x, y: x + y, lambda x, y: x + y),
        (lambda x, y: 2 - x, lambda x, y: 2 - x),
        (lambda x, y: x * 3 - y / 2, lambda x, y: x * 3 - y / np.float32(2)),
        (lambda x, y: -abs(x), lambda x, y: -abs(x)),
        (lambda x, y: x**2, lambda x, y: x**2),
        (lambda x, y: (x > y) + (x <= 0), lambda x, y: 1.0 * (x > y) + (x <= 0)),
        (lambda x, y: np.float32(2) * x, lambda x, y: 2 * x),
        (lambda x, y: x[:, 0:1] + y, lambda x, y: x[:, 0:1] + y),
        (lambda x, y: x[0:1, :] + y, lambda x, y: x[0:1, :] + y),
        (lambda x, y: x[0:1, 1:2] * y, lambda x, y: x[0:1, 1:2] * y),
        (lambda x, y: 1 / (x * x + 1), lambda x, y: 1 / (x * x + 1)),
    ],
    ids=range(11),
)
def test_expressions(expression, want):
    x, y = numbers(4, 5), numbers(4, 5)[::-1].copy()
    np.testing.assert_allclose(run(expression, x, y), want(x, y), rtol=1e-6)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (lambda x, y: x & y, lambda x, y: x & y),
        (lambda x, y: x | 6, lambda x, y: x | 6),
        (lambda x, y: 5 ^ x, lambda x, y: 5 ^ x),
        (lambda x, y: ~x, lambda x, y: ~x),
        (lambda x, y: x << 2, lambda x, y: x << 2),
        (lambda x, y: x >> 1, lambda x, y: (x.view(np.uint32) >> 1).view(np.int32)),
        (lambda x, y: x % 3, lambda x, y: x % 3),
    ],
    ids=range(7),
)
def test_integer_expressions(expression, want):
    x, y = numbers(4, 5, dtype=np.int32), numbers(4, 5, dtype=np.int32)[::-1].copy()
    got = run(expression, x, y)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want(x, y))


@pytest.mark.parametrize("op", ["+=", "-=", "*=", "/="])
def test_operators_in_place(op):
    def whole(x, y):
        exec(f"x {op} y", {"x": x, "y": y})
        return x

    def part(x, y):
        exec(f"x[:, 1:3] {op} y[:, 0:2]", {"x": x, "y": y})
        return x

    y = np.abs(numbers(4, 5)) + 1
    for body in (whole, part):
        want = numbers(4, 5)
        body(want, y)
        np.testing.assert_allclose(run(body, numbers(4, 5), y), want, rtol=1e-6)


def test_a_tile_and_its_alias_are_one():
    def body(x):
        y = x
        y += 1  # in place: x is the same tile
        return x

    np.testing.assert_array_equal(run(body, numbers(2, 3)), numbers(2, 3) + 1)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ShapeError, match="broadcasting rule"):
        run(lambda x: x[:, 0:2] + x[:, 0:3], numbers(2, 4))
    with pytest.raises(ShapeError, match="left operand"):
        run(lambda x: x[:, 0:1].__iadd__(x), numbers(2, 4))
    with pytest.raises(ShapeError, match="numbers only"):
        run(lambda x: nl.add(1, 2), numbers(2, 4))


# -- what operations lower to


@pytest.mark.filterwarnings("ignore:an operator of Python is given:nkisim.NkiWarning")
def test_opcodes():
    x = numbers(4, 5)
    load, store = ["dma_copy"], ["dma_copy"]
    assert opcodes(lambda t: t + t, x) == [*load, "tensor_tensor", *store]
    assert opcodes(lambda t: t + 1, x) == [*load, "tensor_scalar", *store]
    assert opcodes(lambda t: t * t[:, 0:1], x) == [*load, "tensor_scalar", *store]
    assert opcodes(nl.exp, x) == [*load, "activation", *store]
    assert opcodes(lambda t: t + t[0:1], x) == [
        *load,
        "partition_broadcast",
        "tensor_tensor",
        *store,
    ]


@pytest.mark.parametrize(
    ("body", "dtype", "engine"),
    [
        (lambda x: x + x, np.float32, Engine.VECTOR),
        (lambda x: nl.exp(x), np.float32, Engine.SCALAR),
        (lambda x: x**2, np.float32, Engine.GPSIMD),  # nisa.tensor_tensor: power is GpSimd's
        (lambda x: x + x, np.int32, Engine.GPSIMD),  # and so is 32-bit integer arithmetic
        (lambda x: x + x, np.int8, Engine.VECTOR),
        (lambda x: x & x, np.int32, Engine.VECTOR),
    ],
    ids=range(6),
)
def test_engines(body, dtype, engine):
    assert instructions(body, numbers(2, 3, dtype=dtype))[1].engine is engine


def test_instructions_know_their_kernel_line():
    def body(x):
        return x + 1  # this line

    instr = instructions(body, numbers(2, 3))[1]
    assert instr.location.filename == __file__
    assert instr.location.text == "return x + 1  # this line"
    assert "tensor_scalar(add)" in str(instr)


def test_a_sum_in_psum_is_at_the_line_that_adds():
    """Not at that of the matmul, nor at that which calls the helper: each time, however noted."""

    def add(total, product):
        total += product  # here
        return total

    def kernel(x):
        tile = nl.load(x)
        total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        for _ in nl.static_range(4):
            product = nisa.nc_matmul(tile, tile)
            total = add(total, product)
            total += nisa.nc_matmul(tile, tile)  # or here
        out = nl.ndarray((128, 128), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(total))
        return out

    spec = TensorSpec((128, 128), np.dtype(np.float32))
    trace = Kernel(kernel).specialize([spec], {}).program.trace
    lines = [i.location.text for i in trace.instructions if i.opcode == "nc_matmul"]
    assert [line.split("# ")[-1] for line in lines] == ["here", "or here"] * 4


def test_instructions_of_one_line_share_its_location():
    _, a, b, _ = instructions(lambda x: x + 1 + x * 2, numbers(2, 3))[:4]
    assert a.location is b.location


# -- loops


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range, nl.static_range])
def test_loops_record_their_iterations(loop):
    def body(x):
        t = nl.copy(x)
        for i in loop(1, 7, 3):
            for j in loop(2):
                t[:, i + j : i + j + 1] = x[:, i : i + 1]
        nl.device_print("", t[:, 0:1])
        return t

    copies = instructions(body, numbers(2, 8))[2:-2]
    iterations = [tuple(i for _, i in instr.loops) for instr in copies]
    assert iterations == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # Two loops: the inner one is another loop each time it starts.
    assert len({instr.loops[0][0] for instr in copies}) == 1
    assert all(not i.loops for i in instructions(body, numbers(2, 8))[-2:])


def test_a_loop_that_breaks_ends():
    def body(x):
        for i in nl.sequential_range(9):
            if i == 2:
                break
            x += 1
        return x + 1

    assert not instructions(body, numbers(2, 3))[-1].loops
    np.testing.assert_array_equal(run(body, numbers(2, 3)), numbers(2, 3) + 3)


@pytest.mark.parametrize("args", [(), (1, 2, 3, 4), (2.0,), ("3",), (0, 4, 0), (None,)])
@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range, nl.static_range])
def test_loop_bounds_are_integers(loop, args):
    with pytest.raises(ParameterError, match="_range"):
        loop(*args)


def test_a_loop_over_a_tile_value_is_refused():
    with pytest.raises(ParameterError, match="affine_range"):
        run(lambda x: next(x for _ in nl.affine_range(x[0:1, 0:1])), numbers(2, 3))


# -- views


def test_broadcast_to_and_expand_dims():
    x = numbers(3, 4)
    got = run(lambda t: nl.copy(nl.broadcast_to(t[0:1], shape=(3, 4))), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x[0:1], (3, 4)))
    got = run(lambda t: nl.copy(nl.broadcast_to(nl.expand_dims(t, 2), shape=(3, 4, 5))), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x[:, :, None], (3, 4, 5)))


def test_astype():
    x = numbers(3, 4) / 2
    np.testing.assert_array_equal(run(lambda t: t.astype(nl.int8), x), np.rint(x).astype(np.int8))


# -- print


def test_device_print_shows_values_when_the_kernel_runs(capsys):
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.device_print("before ", t)
        t[...] = t + 1
        nl.device_print("after ", t[:, 0:2])
        nl.store(out, t)
        return out

    x = np.array([[1, 2, 3]], np.float32)
    kernel.specialize((x,), {})
    assert capsys.readouterr().out == ""
    for _ in range(2):
        kernel(x)
        assert capsys.readouterr().out == "before [[1., 2., 3.]]\nafter [[2., 3.]]\n"
    kernel(x.astype(nl.bfloat16))
    assert "before [[1., 2., 3.]]" in capsys.readouterr().out


def test_device_print_under_a_mask_shows_what_it_leaves(capsys):
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        i, j = nl.arange(3)[:, None], nl.arange(3)[None, :]
        nl.device_print("box ", t, mask=(i < 2) & (j < 2))
        nl.device_print("triangle ", t, mask=i >= j)
        nl.store(out, t)
        return out

    kernel(np.arange(9, dtype=np.float32).reshape(3, 3))
    assert capsys.readouterr().out == (
        "box [[0., 1.],\n [3., 4.]]\n"
        "triangle [[0.0, --, --],\n [3.0, 4.0, --],\n [6.0, 7.0, 8.0]]\n"
    )

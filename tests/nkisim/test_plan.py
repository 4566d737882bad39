"""The plan's rewrites never change a result.

`naive` (tests/support/as_written.py) executes a trace as written: one NumPy call an instruction,
on separate arrays, operands copied first. Whatever Program.run does to be fast must give the same
bytes.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from as_written import naive, output_numbers, same_as_naive
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

import nkisim
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.dtypes import bfloat16
from nkisim.numerics.plan import plan
from nkisim.runtime.kernel import Kernel

# -- random kernels

ROWS, COLS = 10, 24
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]
UNARY = ["negative", "abs", "square"]
SCALARS = [0, 1, 0.0, -0.0, 2.0, -1.5, True, np.float32(0.5), np.int32(3)]


@st.composite
def recipes(draw):
    """A kernel as data: a list of operations on HBM tensors and tiles of one shape (p, f).

    Steps repeat along the columns, so that neighbours arise that the plan may join, and slide by
    a program id, so that instances read and overwrite one another's work.
    """
    p, f = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    # The same offset and step come up often: aligned tiles are what the rewrites look for.
    column = st.sampled_from([0, 0, f, 2 * f]) | st.integers(0, COLS - f)
    step = st.sampled_from([f, f, 0, 1, 2 * f])
    place = st.tuples(st.sampled_from([0, 0, 1, ROWS - p]), column, step)
    mask = st.none() | st.tuples(st.integers(0, p), st.integers(0, f), st.integers(0, p + f))
    tile = st.integers(0, 5)
    span = st.tuples(st.integers(0, f - 1), st.integers(0, f - 1), st.integers(1, f))
    operation = st.one_of(
        st.tuples(st.just("load"), st.sampled_from("xyzo"), place, mask),
        st.tuples(st.just("load"), st.sampled_from("xy"), place, st.none()),
        st.tuples(st.just("store"), st.sampled_from("zo"), place, tile),
        st.tuples(st.just("store"), st.sampled_from("zo"), place, tile),
        st.tuples(st.just("binary"), st.sampled_from(BINARY), tile, tile),
        st.tuples(st.just("scalar"), st.sampled_from(BINARY), tile, st.sampled_from(SCALARS)),
        st.tuples(st.just("unary"), st.sampled_from(UNARY), tile),
        st.tuples(st.just("inplace"), st.sampled_from(BINARY), tile, tile),
        st.tuples(st.just("late"), st.sampled_from(BINARY), tile, tile, tile, st.booleans()),
        st.tuples(st.just("part"), tile, tile, span),
        st.tuples(st.just("fill"), tile, span, st.sampled_from(SCALARS)),
        st.tuples(st.just("copy"), tile),
        st.tuples(st.just("sweep"), st.sampled_from("xyz"), st.sampled_from("zo"), place, place),
    )
    return {
        "tile": (p, f),
        "grid": draw(st.sampled_from([(), (2,), (2, 2)])),
        "slide": draw(st.sampled_from([0, 1, f])),
        "repeat": draw(st.integers(1, 3)),
        "body": draw(st.lists(operation, min_size=2, max_size=9)),
        "dtypes": draw(
            st.sampled_from(
                [(np.float32,) * 3, (np.int32,) * 3, (np.float32, bfloat16, np.float32)]
            )
        ),
    }


def kernel_of(recipe):
    """The kernel that a recipe describes. Tiles are (tensor, mask parts) pairs."""
    p, f = recipe["tile"]

    def body(x, y, z):
        out = nl.ndarray(z.shape, z.dtype, buffer=nl.shared_hbm)
        hbm = {"x": x, "y": y, "z": z, "o": out}
        shift = sum(nl.program_id(a) for a in range(nl.program_ndim())) * recipe["slide"]
        ip, jf = nl.arange(p)[:, None], nl.arange(f)[None, :]
        tiles = [(nl.zeros((p, f), np.float32), ())]

        def region(name, place, j=0):
            row, column, step = place
            column = (column + shift + j * step) % (COLS - f + 1)
            return hbm[name][row + ip, column + jf]

        def condition(parts):
            mask = None
            for rows, columns, diagonal in parts:
                one = (ip < rows) & (jf < columns) & (ip + jf < diagonal)
                mask = one if mask is None else mask & one
            return mask

        def perform(op, j):
            kind, *rest = op
            pick = lambda i: tiles[-1 - i % len(tiles)]  # noqa: E731  recent tiles first
            if kind == "load":
                name, place, mask = rest
                parts = () if mask is None else (mask,)
                tiles.append((nl.load(region(name, place, j), mask=condition(parts)), parts))
            elif kind == "store":
                name, place, at = rest
                tile, parts = pick(at)
                nl.store(region(name, place, j), tile, mask=condition(parts))
            elif kind == "binary":
                (a, m), (b, n) = pick(rest[1]), pick(rest[2])
                tiles.append((getattr(nl, rest[0])(a, b), m + n))
            elif kind == "scalar":
                a, m = pick(rest[1])
                tiles.append((getattr(nl, rest[0])(a, rest[2]), m))
            elif kind == "unary":
                a, m = pick(rest[1])
                tiles.append((getattr(nl, rest[0])(a), m))
            elif kind == "inplace":
                at = -1 - rest[1] % len(tiles)
                (a, m), (b, n) = tiles[at], pick(rest[2])
                a[...] = getattr(nl, rest[0])(a, b)
                tiles[at] = (a, m + n)
            elif kind == "late":  # the target is touched between a value and its assignment
                name, at, *both, reads = rest
                at = -1 - at % len(tiles)
                (a, m), (b, n), (c, k) = tiles[at], *(pick(i) for i in both)
                value = getattr(nl, name)(b, c)
                before = nl.copy(a) if reads else None
                a[:, 0:1] = 7
                a[...] = value
                tiles[at] = (a, n + k)
                if reads:
                    tiles.append((before, m))
            elif kind == "part":  # a (possibly overlapping) move between column ranges
                (a, m), (b, n) = pick(rest[0]), pick(rest[1])
                to, start, width = rest[2]
                width = min(width, f - to, f - start)
                if m or n:
                    return  # which elements are defined would move, too
                a[:, to : to + width] = b[:, start : start + width]
            elif kind == "fill":
                (a, _), (start, _, width), value = pick(rest[0]), rest[1], rest[2]
                a[:, start : min(f, start + width)] = value
            elif kind == "copy":
                a, m = pick(rest[0])
                tiles.append((nl.copy(a), m))
            elif kind == "sweep":  # load, compute, store: what tutorial kernels do
                source, target, here, there = rest
                nl.store(region(target, there, j), nl.load(region(source, here, j)) + 1)

        for op in recipe["body"]:
            for j in range(recipe["repeat"]):
                perform(op, j)
        nl.store(region("o", (0, 0, 0)), tiles[-1][0], mask=condition(tiles[-1][1]))
        return out, z

    body.__annotations__["z"] = "mutable_tensor"
    kernel = Kernel(body)
    return kernel[recipe["grid"]] if recipe["grid"] else kernel


def _unfolded(recipe, arrays):
    """The program with every assignment a copy, as written: tracing already folds most away."""
    with pytest.MonkeyPatch.context() as patch, nkisim.checks(race="off"):
        patch.setattr("nkisim.trace.tracer.fold_assignments", lambda trace: None)
        return kernel_of(recipe).specialize(arrays, {}).program


@settings(max_examples=2 * settings.default.max_examples, suppress_health_check=list(HealthCheck))
@given(recipes(), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
def test_random_kernels_run_as_written(recipe, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-9, 10, (ROWS, COLS)).astype(t) for t in recipe["dtypes"]]
    try:
        # Instances run one after the other here, so even races have one right answer.
        with nkisim.checks(race="off"):
            program = kernel_of(recipe).specialize(arrays, {}).program
    except nkisim.KernelError as error:
        event(type(error).__name__)
        reject()
    expected = naive(_unfolded(recipe, arrays), arrays)
    steps = plan(program.trace, set(output_numbers(program)))
    event("rewritten" if len(steps) < len(program.instructions) else "as written")
    for _ in range(2):
        for got, want in zip(program.run(arrays), expected, strict=True):
            assert got.tobytes() == want.tobytes(), f"\n{got}\n{want}"


# -- the rewrites take place (or the property above would hold for nothing)


def tiled_add(a, b):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    ix = i * 128 + nl.arange(128)[:, None]
    iy = j * 512 + nl.arange(512)[None, :]
    nl.store(out[ix, iy], nl.load(a[ix, iy]) + nl.load(b[ix, iy]))
    return out


def test_a_tiled_add_becomes_one_call():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 512, 1024)).astype(np.float32)
    program = same_as_naive(Kernel(tiled_add)[4, 2], a, b)
    assert len(program.instructions) == 4 * 2 * 4
    assert len(plan(program.trace, {program.trace.result.buffer.number})) == 1
    np.testing.assert_array_equal(program.run([a, b])[0], a + b)


def test_a_load_is_not_forwarded_past_a_later_write_of_its_source():
    @Kernel
    def shift(x):
        t = nl.load(x[0:4, 0:8])
        nl.store(x[0:4, 0:8], nl.zeros((4, 8), np.float32))
        nl.store(x[0:4, 8:16], t)  # the old values, not the zeros

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    same_as_naive(shift, x)
    want = x[:, 0:8].copy()
    shift(x)
    np.testing.assert_array_equal(x[:, 8:16], want)
    assert not x[:, 0:8].any()


def test_a_store_is_not_hoisted_over_a_read_of_its_target():
    @Kernel
    def swap_in(x):
        new = nl.load(x[0:4, 0:8]) * 2
        old = nl.load(x[0:4, 8:16]) + 1
        nl.store(x[0:4, 8:16], new)
        nl.store(x[0:4, 0:8], old)

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    same_as_naive(swap_in, x)


def test_a_store_is_not_hoisted_over_a_write_of_its_target():
    @Kernel
    def last_wins(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        first = nl.load(x) * 2
        second = nl.load(x) + 1
        nl.store(out, second)
        nl.store(out, first)
        return out

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    same_as_naive(last_wins, x)
    np.testing.assert_array_equal(last_wins(x), x * 2)


def test_a_store_of_another_part_than_was_written_is_not_forwarded():
    @Kernel
    def parts(x):
        out = nl.ndarray((2, 4), x.dtype, buffer=nl.shared_hbm)
        t = nl.zeros((2, 8), x.dtype)
        u = nl.copy(t)
        u[:, 0:4] = nl.load(x[:, 4:8]) * 2
        nl.store(out, u[:, 4:8])
        return out

    x = np.ones((2, 8), np.float32)
    same_as_naive(parts, x)
    np.testing.assert_array_equal(parts(x), 0)


def test_a_whole_tile_is_computed_on_when_a_masked_load_filled_a_part():
    # The part of the tile that the load left out has nothing behind it in the load's source.
    @Kernel
    def edge(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        jf = nl.arange(4)[None, :]
        ip = nl.arange(2)[:, None]
        for j in nl.affine_range(2):
            inside = 4 * j + jf < 6
            t = nl.load(x[ip, 4 * j + jf], mask=inside)
            nl.store(out[ip, 4 * j + jf], t * 2, mask=inside)
        return out

    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    same_as_naive(edge, x)
    np.testing.assert_array_equal(edge(x), x * 2)


def test_in_place_chains_that_slide_along_a_tile_are_not_joined():
    # Each step reads what the step before it wrote: joined, it would read the old values.
    @Kernel
    def prefix(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        for j in nl.sequential_range(1, 16):
            t[:, j : j + 1] = t[:, j : j + 1] + t[:, j - 1 : j]
        nl.store(out, t)
        return out

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    same_as_naive(prefix, x)
    np.testing.assert_array_equal(prefix(x), np.cumsum(x, axis=1))


def test_windows_that_meet_are_not_joined():
    """Windows of 3 rows every 3, then of 2 rows after them: as one pattern of 5 rows every 3,
    two windows would write one row."""

    def spread(a):
        out = nl.ndarray((128, 12), a.dtype, buffer=nl.shared_hbm)
        tile, total = nl.load(a), nl.zeros((128, 12), nl.float32)
        for first, width in ((0, 3), (3, 2)):
            p, window, row = nl.mgrid[0:128, 0:3, 0:width]
            rows = first + 3 * window + row
            total[p, rows] = nl.add(total[p, rows], tile[p, window])
        nl.store(out, total)
        return out

    a = np.arange(128 * 3, dtype=np.float32).reshape(128, 3)
    same_as_naive(Kernel(spread), a)


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (-0.0, 0.0), (0, -0.0), (1, True)])
def test_scalars_that_are_equal_but_not_the_same_are_not_joined(first, second):
    # 0.0 == -0.0, but 1 / x tells them apart.
    @Kernel
    def fill(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, x.dtype)
        t[:, 0:4] = first
        t[:, 4:8] = second
        s = nl.ndarray(x.shape, x.dtype)
        y = nl.load(x)
        s[:, 0:4] = nl.multiply(y[:, 0:4], first)
        s[:, 4:8] = nl.multiply(y[:, 4:8], second)
        nl.store(out, t + s)
        return out

    x = np.ones((2, 8), np.float32)
    program = same_as_naive(fill, x)
    got = program.run([x])[0]
    want = np.repeat([2.0 * first, 2.0 * second], 4).astype(np.float32)
    np.testing.assert_array_equal(np.signbit(got[0]), np.signbit(want))
    np.testing.assert_array_equal(got[0], want)


def test_an_assignment_keeps_its_place():
    # Tracing lets the writer of a value write where it is assigned: not past other writes there.
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        old = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.zeros(x.shape, x.dtype)
        value = nl.load(x) * 2
        nl.store(old, t)
        t[:, 0:2] = 7
        t[...] = value
        nl.store(out, t)
        return out, old

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    same_as_naive(kernel, x)
    out, old = kernel(x)
    np.testing.assert_array_equal(out, x * 2)
    np.testing.assert_array_equal(old, 0)


def test_a_tile_read_by_two_stores_is_kept():
    @Kernel
    def twice(x):
        a = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        b = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x) * 3
        nl.store(a, t)
        t[...] = t + 1
        nl.store(b, t)
        return a, b

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    same_as_naive(twice, x)
    a, b = twice(x)
    np.testing.assert_array_equal(a, x * 3)
    np.testing.assert_array_equal(b, x * 3 + 1)


# -- size


def many_tiles(x, n):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(n):
        part = slice(i, i + 1)
        # Stored in the opposite order of loading: nothing to join, so every step stays.
        nl.store(out[:, n - 1 - i : n - i], nl.load(x[:, part]) * 2 + i)
    return out


def test_planning_is_not_quadratic(monkeypatch):
    """Touches of a buffer, counted: twice the instructions, about twice the work."""
    from nkisim.numerics import plan as module

    counts = []
    for n in (400, 800):
        program = Kernel(many_tiles).specialize((np.zeros((2, n), np.float32), n), {}).program
        touched = 0

        slot = module.Step.tiles_in

        def counted(step, slot=slot):
            nonlocal touched
            touched += 1
            return slot.__get__(step)

        monkeypatch.setattr(module.Step, "tiles_in", property(counted, slot.__set__))
        plan(program.trace, {program.trace.result.buffer.number})
        monkeypatch.undo()
        counts.append(touched)
    assert counts[1] < 3 * counts[0]


def test_memory_of_a_trace():
    n = 500
    x = np.zeros((2, n), np.float32)
    Kernel(many_tiles).specialize((x[:, :10], 10), {})
    tracemalloc.start()
    program = Kernel(many_tiles).specialize((x, n), {}).program
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    per_instruction = used / len(program.instructions)
    assert per_instruction < 1100, f"{per_instruction:.0f} bytes an instruction"


def test_twenty_thousand_instructions():
    n = 5000
    x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
    program = Kernel(many_tiles).specialize((x, n), {}).program
    assert len(program.instructions) == 20_000
    want = (x * 2 + np.arange(n, dtype=np.float32))[:, ::-1]
    np.testing.assert_array_equal(program.run([x])[0], want)


@pytest.mark.parametrize(("held", "written"), [
    (nl.float32, nl.int32), (nl.float32, nl.uint32), (nl.int32, nl.float32),
    (bfloat16, nl.uint16), (nl.float16, nl.int16), (nl.uint8, nl.int8),
])  # fmt: skip
@pytest.mark.parametrize("how", ["load", "copy", "tensor_copy", "dma_copy", "add", "through HBM"])
def test_a_tile_written_as_another_type_keeps_the_bits(how, held, written):
    def kernel(x):
        out = nl.ndarray(x.shape, held, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, held, buffer=nl.hbm if how == "through HBM" else nl.sbuf)
        bits = tile.view(written)
        if how == "load":
            bits[...] = nl.load(x)
        elif how == "copy":
            bits[...] = nl.copy(nl.load(x))
        elif how == "tensor_copy":
            bits[...] = nisa.tensor_copy(nl.load(x))
        elif how == "add":
            bits[...] = nl.add(nl.load(x), 1, dtype=written)
        else:
            nisa.dma_copy(src=x, dst=bits)
        nl.store(out, nl.load(tile) if how == "through HBM" else tile)
        return out

    x = np.arange(1, 97).reshape(4, 24).astype(written)
    program = same_as_naive(Kernel(kernel), x)
    (found,) = program.run([x])
    assert found.tobytes() == (x + x.dtype.type(how == "add")).tobytes()

"""Running a traced kernel: arguments in place, layouts, empty arrays, threads, and its digest."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nkisim import TensorSpec
from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.frontends.neuronxcc.nki.typing import mutable_tensor
from nkisim.runtime.kernel import Kernel


def numbers(*shape, dtype=np.float32):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(dtype)


ONE_FROM_COLUMN_1 = np.array([0, 1, 1], np.float32)


@Kernel
def double(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@Kernel
def old_style(x, out):
    """Writes its argument, as kernels before output tensors did."""
    nl.store(out, nl.load(x) + nl.load(out))


@Kernel
def increment(x: mutable_tensor):
    nl.store(x[:, 1:], nl.load(x[:, 1:]) + 1)
    return x


def programs(kernel, *args):
    return kernel.specialize(args, {}).program


# -- what a program says about itself


def test_inputs_and_outputs():
    program = programs(double, TensorSpec((4, 6), np.dtype(nl.bfloat16)))
    assert program.inputs == (TensorSpec((4, 6), np.dtype(nl.bfloat16), "x"),)
    (out,) = program.outputs
    assert (out.shape, out.dtype) == ((4, 6), nl.bfloat16)
    assert program.aliases == {}
    assert [i.opcode for i in program.instructions] == ["dma_copy", "tensor_scalar", "dma_copy"]


def test_a_written_argument_is_an_output_that_aliases_it():
    program = programs(old_style, numbers(2, 3), numbers(2, 3))
    assert [spec.name for spec in program.outputs] == ["out"]
    assert program.aliases == {0: 1}


# -- in place


def test_arguments_are_written_in_place():
    x, out = numbers(2, 3), numbers(2, 3)
    assert old_style(x, out) is None
    np.testing.assert_array_equal(out, 2 * numbers(2, 3))
    np.testing.assert_array_equal(x, numbers(2, 3))


def test_a_mutable_argument_is_returned_itself():
    x = numbers(2, 3)
    assert increment(x) is x
    np.testing.assert_array_equal(x, numbers(2, 3) + ONE_FROM_COLUMN_1)


def test_in_place_on_a_view_that_is_not_contiguous():
    whole = numbers(4, 12)
    view = whole[::2, 1::3]
    want = view + np.array([0, 1, 1, 1])
    increment(view)
    np.testing.assert_array_equal(whole[::2, 1::3], want)
    np.testing.assert_array_equal(whole[1::2], numbers(4, 12)[1::2])


def test_run_leaves_its_inputs_alone():
    x = numbers(2, 3)
    (got,) = programs(increment, x).run([x])
    np.testing.assert_array_equal(x, numbers(2, 3))
    np.testing.assert_array_equal(got, numbers(2, 3) + ONE_FROM_COLUMN_1)


def test_run_in_place_when_input_and_output_are_one_array():
    x = numbers(2, 3)
    (got,) = programs(increment, x).run([x], [x])
    assert got is x
    np.testing.assert_array_equal(x, numbers(2, 3) + ONE_FROM_COLUMN_1)


def test_a_read_only_argument_that_is_written():
    x = numbers(2, 3)
    x.flags.writeable = False
    with pytest.raises(ParameterError, match="'x' is read-only"):
        increment(x)


def test_one_array_as_two_arguments():
    x = numbers(2, 3)
    np.testing.assert_array_equal(_add(x, x), 2 * x)


@Kernel
def _add(x, y):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + nl.load(y))
    return out


def test_one_tensor_returned_twice():
    @Kernel
    def twice(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 3)
        return out, out.reshape((3, 2)), out

    a, b, c = twice(numbers(2, 3))
    np.testing.assert_array_equal(a, 3 * numbers(2, 3))
    np.testing.assert_array_equal(b, 3 * numbers(3, 2))
    np.testing.assert_array_equal(c, a)


def in_rows(x, out):
    """Fills `out` tile by tile, with a mask at the end."""
    i_row, i_col = nl.mgrid[0:2, 0:4]
    for tile in nl.affine_range(2):
        rows = tile * 2 + i_row
        inside = rows < x.shape[0]
        nl.store(out[rows, i_col], nl.load(x[rows, i_col], mask=inside), mask=inside)


def but_the_last_row(x, out):
    nl.store(out[0:2], nl.load(x[0:2]))


def at_places(x, index, out):
    i_col = nl.arange(4)[None, :]
    tile = nl.load(index[nl.arange(3)[:, None]])
    nl.store(out[tile, i_col], nl.load(x))


@pytest.mark.parametrize(
    ("kernel", "needed"),
    [
        (in_rows, (0,)),
        (old_style, (0, 1)),  # read
        (but_the_last_row, (0, 1)),  # a row keeps what it had
        (at_places, (0, 1, 2)),  # data decides where it writes
        (double, (0,)),
    ],
)
def test_arguments_whose_old_contents_matter(kernel, needed):
    x = TensorSpec((3, 4), np.dtype(np.float32))
    specs = {"index": TensorSpec((3,), np.dtype(np.int32))}
    kernel = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    args = [specs.get(name, x) for name in kernel.signature.parameters]
    assert kernel.specialize(args, {}).program.needed_inputs == needed


def test_an_argument_returned_as_it_is():
    @Kernel
    def same(x):
        return x

    x = numbers(2, 3)
    x.flags.writeable = False  # nothing writes it
    np.testing.assert_array_equal(same(x), x)


# -- layouts


@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers(6, 4).T,
        lambda: numbers(8, 12)[::2, ::2],
        lambda: np.asfortranarray(numbers(4, 6)),
        lambda: numbers(4, 6)[::-1, ::-1],
        lambda: np.broadcast_to(numbers(6), (4, 6)),
        lambda: np.frombuffer(numbers(4, 6).tobytes(), np.float32).reshape(4, 6),
    ],
    ids=["transposed", "strided", "fortran", "reversed", "broadcast", "read-only"],
)
def test_inputs_of_any_layout(make):
    x = make()
    np.testing.assert_array_equal(double(x), x * 2)


def test_results_are_new_arrays():
    x = numbers(2, 3)
    first = double(x)
    second = double(x)
    first[...] = 0
    np.testing.assert_array_equal(second, 2 * x)
    assert second.flags.owndata
    assert second.flags.c_contiguous


def test_outputs_that_are_given_are_filled():
    x = numbers(2, 3)
    out = np.zeros((2, 3), np.float32)
    (got,) = programs(double, x).run([x], [out])
    assert got is out
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ([np.zeros((3, 2), np.float32)], "output"),
        ([np.zeros((2, 3), np.float64)], "output"),
        ([np.zeros((3, 2), np.float32).T], "C-contiguous"),
        ([], "1 output"),
    ],
    ids=["shape", "dtype", "layout", "count"],
)
def test_outputs_that_do_not_fit_are_refused(outputs, match):
    # Or the result would land in a copy, or beside the array.
    x = numbers(2, 3)
    with pytest.raises(ParameterError, match=match):
        programs(double, x).run([x], outputs)


@pytest.mark.parametrize(
    "inputs",
    [[], [numbers(2, 3)] * 2, [numbers(3, 2)], [numbers(2, 3, dtype=np.float16)]],
    ids=["none", "two", "shape", "dtype"],
)
def test_inputs_that_do_not_fit_are_refused(inputs):
    with pytest.raises(ParameterError):
        programs(double, numbers(2, 3)).run(inputs)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, ">f4", np.complex64])
def test_types_that_a_neuroncore_has_not(dtype):
    with pytest.raises(TypeError, match=r"x\.dtype"):
        double(np.zeros((2, 3), dtype))


# -- empty arrays


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_empty_arrays(shape):
    got = double(np.zeros(shape, np.float32))
    assert got.shape == shape
    assert got.dtype == np.float32


def test_empty_parts_past_the_end():
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for start in (0, 2, 4, 6):  # the last two are empty
            stop = min(start + 2, 4)
            part = slice(start, max(start, stop))
            nl.store(out[:, part], nl.load(x[:, part]) + 1)
        return out

    np.testing.assert_array_equal(kernel(numbers(2, 4)), numbers(2, 4) + 1)


@pytest.mark.filterwarnings("ignore:an operator of Python is given:nkisim.NkiWarning")
def test_a_scalar_array_as_an_argument():
    @Kernel
    def shift(x, by):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + nl.load(by.reshape((1, 1))))
        return out

    by = np.array(2.5, np.float32)
    np.testing.assert_array_equal(shift(numbers(2, 3), by), numbers(2, 3) + 2.5)


# -- threads


def chain(x, y):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 4):
        rows = slice(4 * i, 4 * i + 4)
        t = nl.load(x[rows]) * 2
        u = nl.exp(nl.load(y[rows])) + t
        t[...] = u * t
        nl.store(out[rows], t - u)
    return out


def test_eight_threads_run_one_program():
    rng = np.random.default_rng(0)
    kernel = Kernel(chain)
    data = [rng.normal(size=(2, 32, 257)).astype(np.float32) for _ in range(8)]
    want = [kernel(*pair) for pair in data]
    program = programs(kernel, *data[0])
    program._plan = program.__class__(program.trace, [program.trace.result])._plan
    start = threading.Barrier(8)
    wrong: list[int] = []

    def work(k):
        start.wait()
        for _ in range(40):
            (got,) = program.run(list(data[k]))
            if not np.array_equal(got, want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_trace_their_own_kernels():
    # Tracing state belongs to a thread: kernels traced at once do not mix.
    results: dict[int, np.ndarray] = {}

    def work(k):
        kernel = Kernel(chain)
        x = np.full((32, 8 + k), k, np.float32)
        results[k] = kernel(x, np.zeros_like(x))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        t, u = 2.0 * k, 1 + 2.0 * k
        np.testing.assert_array_equal(results[k], np.full((32, 8 + k), u * t - u, np.float32))


def test_a_failed_run_does_not_spoil_the_next():
    x = numbers(2, 3)
    program = programs(double, x)
    with pytest.raises(ParameterError):
        program.run([numbers(5, 5)])
    np.testing.assert_array_equal(program.run([x])[0], 2 * x)


# -- digest


DIGEST = """
    import numpy as np
    from nkisim.runtime.kernel import Kernel
    from nkisim.frontends.neuronxcc.nki import language as nl

    @Kernel
    def kernel(x, scale):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(4)[:, None], nl.arange(4)[None, :]
        t = nl.zeros((4, 4), x.dtype)
        t[i, j] = nl.load(x[i, j], mask=i >= j) * scale
        nl.store(out, t)
        return out

    spec = np.zeros((4, 4), np.float32)
    print(kernel.specialize((spec, 2.0), {}).program.digest)
    """


def test_the_digest_is_the_same_in_every_process(run_python):
    seeds = ("0", "1", "random")
    digests = {run_python(DIGEST, env={"PYTHONHASHSEED": s}).stdout for s in seeds}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64


def variant(x, op="add", scalar=1.0, rows=4, dtype=None, diagonal=None):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i, j = nl.arange(rows)[:, None], nl.arange(4)[None, :]
    t = getattr(nl, op)(nl.load(x), scalar, dtype=dtype or x.dtype)
    nl.store(out, nl.zeros(x.shape, x.dtype))
    nl.store(out[i, j], t[i, j], mask=None if diagonal is None else i - j >= diagonal)
    return out


def test_the_digest_tells_programs_apart():
    x = numbers(4, 4)
    settings = [
        {},
        {"op": "subtract"},
        {"scalar": 2.0},
        {"scalar": -0.0},
        {"scalar": 0.0},
        {"scalar": np.float16(1)},
        {"rows": 3},
        {"dtype": nl.float16},
        {"diagonal": 1},
        {"diagonal": 2},
    ]
    digests = [Kernel(variant).specialize((x,), s).program.digest for s in settings]
    digests.append(programs(Kernel(variant), x.astype(np.float16)).digest)
    digests.append(programs(Kernel(variant), numbers(4, 5)).digest)
    assert len(set(digests)) == len(digests)
    assert digests[0] == programs(Kernel(variant), x).digest


def _digest(body):
    @Kernel
    def kernel():
        out = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, body(nl.zeros((128, 8), nl.float32)))
        return out

    return kernel.specialize((), {}).program.digest


def test_the_digest_tells_engines_apart():
    engines = (nisa.unknown_engine, nisa.vector_engine, nisa.scalar_engine)
    assert len({_digest(lambda t, e=e: nisa.tensor_copy(t, engine=e)) for e in engines}) == 3


def test_the_digest_tells_masks_of_outputs_apart():
    i, j = nl.mgrid[0:128, 0:8]

    def gathered(t, mask):
        found = nl.zeros((128, 8), nl.float32)
        picks = nl.zeros((128, 8), nl.uint32)
        found[...] = nl.gather_flattened(t, picks, mask=mask)
        return found

    masks = (None, i >= 8 * j, i >= 9 * j)
    assert len({_digest(lambda t, m=m: gathered(t, m)) for m in masks}) == 3

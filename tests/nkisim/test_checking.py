"""Each check: a kernel with the bug, which is diagnosed at its line, and one without."""

from __future__ import annotations

import os
import pickle
import re
import warnings

import numpy as np
import pytest
from traces import like

import nkisim
from nkisim.checking import CHECKS
from nkisim.errors import (
    IndexingError,
    KernelError,
    MemorySpaceError,
    NkiWarning,
    OutOfBoundsError,
    OutputError,
    ParameterError,
    RaceError,
    ShapeError,
    TileSizeError,
    UninitializedReadError,
)
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.frontends.neuronxcc.nki import simulate_kernel
from nkisim.runtime.kernel import Kernel


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def diagnosed(error, match, kernel, *args):
    """Run `kernel`, which must fail with `error` at its line that ends in `# here`."""
    with pytest.raises(error, match=match) as caught:
        kernel(*args)
    report = caught.value
    assert report.location.filename == __file__
    assert report.location.text.endswith("# here"), report
    # The message says what, where, which rule and what to do.
    text = str(report)
    assert f"{os.path.basename(__file__)}:{report.location.lineno} in " in text
    assert re.search(r"\n  rule: \S.*\n  fix:  \S", text)
    return report


# -- bounds


def windowed(x, start, columns, mask=None):
    out = like(x)
    i, j = nl.arange(x.shape[0])[:, None], nl.arange(columns)[None, :]
    inside = None if mask is None else (start + j < mask)
    tile = nl.load(x[i, start + j], mask=inside)  # here
    nl.store(out[i, start + j], tile, mask=inside)
    return out


def test_a_load_past_the_end():
    report = diagnosed(OutOfBoundsError, "axis 1 of .*'x'", Kernel(windowed), ones(4, 10), 4, 8)
    assert "reached at 11, but its size is 10" in str(report)
    assert isinstance(report, IndexError)


def test_a_load_before_the_start():
    diagnosed(OutOfBoundsError, "reached at -2", Kernel(windowed), ones(4, 10), -2, 8)


def test_a_mask_keeps_a_load_inside():
    x = ones(4, 10)
    with pytest.warns(NkiWarning, match=r"16 of 40 elements of the output"):
        np.testing.assert_array_equal(Kernel(windowed)(x, 4, 8, 10)[:, 4:], x[:, 4:])


def test_a_mask_that_is_one_too_wide():
    diagnosed(OutOfBoundsError, "reached at 10", Kernel(windowed), ones(4, 10), 4, 8, 11)


def test_bounds_are_those_of_the_axis_not_of_the_memory():
    # x[0, 12] exists in memory: it is x[1, 2].
    @Kernel
    def wrap(x):
        out = like(x)
        nl.store(out[0:1, 0:1], nl.load(x[0:1, nl.ds(12, 1)]))  # here
        return out

    diagnosed(OutOfBoundsError, "axis 1", wrap, ones(4, 10))


def flat(x, rows, columns):
    """A vector in tiles of (rows, columns): the mask couples both axes of the tile."""
    out = like(x)
    (n,) = x.shape
    i, j = nl.arange(rows)[:, None], nl.arange(columns)[None, :]
    for start in nl.affine_range((n + rows * columns - 1) // (rows * columns)):
        at = start * rows * columns + i * columns + j
        tile = nl.load(x[at], mask=at < n)
        nl.store(out[at], tile * 2, mask=at < n)
    return out


@pytest.mark.parametrize("n", [1, 5, 11, 12, 13, 23, 24, 25, 31])
def test_a_vector_that_ends_inside_a_row_of_the_last_tile(n):
    # The bounding box of what the mask leaves reaches past the end of the tensor.
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(Kernel(flat)(x, 3, 4), x * 2)


@pytest.mark.parametrize("n", [3, 7, 10])
def test_a_triangle_whose_other_corner_lies_outside(n):
    @Kernel
    def hankel(x):  # out[i, j] = x[i + j], where there is one
        n = x.shape[0]
        out = nl.ndarray((n, n), x.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(n)[:, None], nl.arange(n)[None, :]
        nl.store(out, nl.zeros((n, n), x.dtype))
        nl.store(out[i, j], nl.load(x[i + j], mask=i + j < n), mask=i + j < n)
        return out

    x = np.arange(1, n + 1, dtype=np.float32)
    i, j = np.ogrid[0:n, 0:n]
    np.testing.assert_array_equal(hankel(x), np.where(i + j < n, x[np.minimum(i + j, n - 1)], 0))


def test_every_axis_is_looked_at_under_a_coupled_mask():
    # Axis 0 is inside where the mask is true; axis 1 is not.
    @Kernel
    def kernel(x):
        out = like(x)
        i, j = nl.arange(4)[:, None], nl.arange(4)[None, :]
        tile = nl.load(x[i + j, 2 * j], mask=i + j < 4)  # here
        nl.store(out, tile, mask=i + j < 4)
        return out

    diagnosed(OutOfBoundsError, "axis 1 .* reached at 6", kernel, ones(4, 4))


# -- tiles


def test_more_partitions_than_there_are():
    @Kernel
    def kernel(x):
        out = like(x)
        nl.store(out, nl.load(x))  # here
        return out

    report = diagnosed(TileSizeError, "partition axis of 129", kernel, ones(129, 4))
    assert report.code == "err_num_partition_exceed_arch_limit"
    np.testing.assert_array_equal(kernel(ones(128, 4)), ones(128, 4))


@pytest.mark.parametrize(
    ("space", "largest"),
    [(nl.sbuf, (192 - 16) * 1024), (nl.psum, 2 * 1024)],  # bytes a partition, NeuronCore-v2
)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_tiles_that_no_partition_holds(space, largest, dtype):
    @Kernel
    def kernel(n):
        out = nl.ndarray((1, 1), dtype, buffer=nl.shared_hbm)
        tile = nl.zeros((2, n), dtype, buffer=space)  # here
        nl.store(out, tile[0:1, 0:1])
        return out

    n = largest // np.dtype(dtype).itemsize
    kernel(n)
    diagnosed(TileSizeError, "bytes a partition", kernel, n + 1)


def test_a_tile_of_one_axis():
    @Kernel
    def kernel():
        nl.zeros((128,), nl.float32)  # here

    diagnosed(TileSizeError, "1 axis", kernel)


def test_a_partition_axis_that_is_not_first():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.load(x)
        i, j = nl.arange(4)[None, :], nl.arange(8)[:, None]
        nl.store(out, nl.copy(t[i, j]))  # here
        return out

    report = diagnosed(IndexingError, "partition axis is 0", kernel, ones(4, 8))
    assert report.code == "err_failed_to_infer_tile_from_local_tensor"


def test_a_block_of_tiles_has_its_partition_axis_where_it_says():
    @Kernel
    def blocks(x):
        out = like(x)
        block = nl.ndarray((3, nl.par_dim(4), 5), x.dtype)
        for b in nl.affine_range(3):
            block[b] = nl.load(x[b])
        for b in nl.affine_range(3):
            nl.store(out[b], block[b] + b)
        return out

    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    np.testing.assert_array_equal(blocks(x), x + np.arange(3, dtype=np.float32)[:, None, None])


def test_the_same_part_of_a_tile_with_another_partition_axis():
    @Kernel
    def kernel(x):
        out = like(x)
        block = nl.ndarray((3, nl.par_dim(4), 5), x.dtype)
        block[0] = nl.load(x[0])
        tile = nl.ndarray((3, 4, 5), x.dtype)
        tile[0] = nl.load(x[0])  # here
        nl.store(out[0], block[0])
        return out

    report = diagnosed(IndexingError, "partition axis is 0", kernel, ones(3, 4, 5))
    assert report.code == "err_failed_to_infer_tile_from_local_tensor"


# -- memories


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda x, t, out: x + t, "nl.add is given 'x'"),
        (lambda x, t, out: nl.exp(x), "nl.exp is given 'x'"),
        (lambda x, t, out: nl.where(t, x, t), "nl.where|where is given 'x'"),
        (lambda x, t, out: nl.load(t), "nl.load from"),
        (lambda x, t, out: nl.store(t, t), "nl.store to"),
        (lambda x, t, out: nl.store(out, x), "nl.store of 'x'"),
        (lambda x, t, out: out.__setitem__(Ellipsis, t), "assignment to"),
        (lambda x, t, out: t.__setitem__(Ellipsis, x), "assignment of 'x'"),
        (lambda x, t, out: nl.zeros((2, 2), nl.float32, buffer=nl.shared_hbm), "initial value"),
        (lambda x, t, out: nl.ndarray((2, 2), nl.float32, buffer="sbuf"), "buffer='sbuf'"),
    ],
    ids=range(10),
)
def test_operands_in_the_wrong_memory(use, match):
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.load(x)
        use(x, t, out)
        nl.store(out, t)
        return out

    with pytest.raises(MemorySpaceError, match=match) as caught:
        kernel(ones(4, 4))
    assert caught.value.location.filename == __file__


# -- uninitialised reads


def test_reading_a_tile_that_nothing_wrote():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.ndarray(x.shape, x.dtype)
        nl.store(out, t + nl.load(x))  # here
        return out

    report = diagnosed(UninitializedReadError, r"16 of 16 elements .* \[0, 0\]", kernel, ones(4, 4))
    assert "the tensor was made at test_checking.py" in str(report)


def rounds_of_128(x, mask_of_store=True, loaded=True):
    """The rows of `x`, in rounds of 128; the mask leaves nothing of the last one."""
    out = like(x)
    i, j = nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
    for k in nl.affine_range(3):
        row = 128 * k + i
        t = nl.ndarray((128, x.shape[1]), x.dtype)
        if loaded:
            t[...] = nl.load(x[row, j], mask=row < x.shape[0])
        e = nl.exp(t)  # here
        e = e / nl.sum(e, axis=1, keepdims=True)
        nl.store(out[row, j], e, mask=(row < x.shape[0]) if mask_of_store else None)
    return out


@pytest.mark.parametrize("rows", [200, 256])
def test_a_round_that_its_masks_leave_nothing_of(rows):
    x = np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32)
    e = np.exp(x)
    want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(Kernel(rounds_of_128)(x), want, rtol=1e-5)


def products_of_rounds(x):
    """As above, with a sum of products that the first of them starts."""
    out = nl.ndarray((x.shape[1], x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    i, j = nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
    total = nl.zeros((x.shape[1], x.shape[1]), x.dtype)
    for k in nl.sequential_range(2):
        row = 128 * k + i
        t = nl.load(x[row, j], mask=row < x.shape[0])
        psum = nl.ndarray((x.shape[1], x.shape[1]), nl.float32, buffer=nl.psum)
        psum += nl.matmul(t, t, transpose_x=True)
        total[...] = nl.add(total, psum, mask=nl.arange(1)[:, None] + 128 * k < x.shape[0])
    nl.store(out, total)
    return out


def test_sums_of_products_of_such_a_round():
    x = np.random.default_rng(0).standard_normal((128, 6)).astype(np.float32)
    np.testing.assert_allclose(Kernel(products_of_rounds)(x), x.T @ x, rtol=1e-4, atol=1e-4)


def test_such_a_round_may_not_store():
    with nkisim.checks(bounds="off"), pytest.raises(UninitializedReadError, match="store reads"):
        Kernel(rounds_of_128)(ones(256, 6), False)


def test_a_tile_that_no_instruction_names_is_still_diagnosed():
    diagnosed(
        UninitializedReadError, "768 of 768", Kernel(rounds_of_128), ones(256, 6), True, False
    )


def edges(x, mask_of_store):
    """AWS's documented pattern: load under a mask, compute on the whole tile, store under it."""
    out = like(x)
    rows, columns = x.shape
    i, j = nl.arange(4)[:, None], nl.arange(8)[None, :]
    for p in nl.affine_range((rows + 3) // 4):
        for f in nl.affine_range((columns + 7) // 8):
            inside = (4 * p + i < rows) & (8 * f + j < columns)
            t = nl.load(x[4 * p + i, 8 * f + j], mask=inside)
            t = nl.exp(t) * 2 + t
            nl.store(out[4 * p + i, 8 * f + j], t, mask=inside if mask_of_store else None)  # here
    return out


@pytest.mark.parametrize("shape", [(4, 8), (5, 9), (3, 7), (9, 25), (1, 1)])
def test_masked_load_whole_computation_masked_store(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(Kernel(edges)(x, True), np.exp(x) * 2 + x, rtol=1e-6)


def test_storing_more_than_was_loaded():
    # A shape at which the store stays inside the tensor, but the load was cut short.
    @Kernel
    def kernel(x):
        out = like(x)
        i, j = nl.arange(4)[:, None], nl.arange(8)[None, :]
        t = nl.load(x[i, j], mask=j < 6) + 1
        nl.store(out[i, j], t)  # here
        return out

    diagnosed(UninitializedReadError, r"8 of 32 elements .* \[0, 6\]", kernel, ones(4, 8))


def test_reading_an_output_before_it_is_written():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.load(out)  # here
        nl.store(out, t)
        return out

    diagnosed(UninitializedReadError, "16 of 16", kernel, ones(4, 4))


def test_parts_written_one_by_one_make_a_whole():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.ndarray(x.shape, x.dtype)
        for j in nl.affine_range(x.shape[1]):
            t[:, j : j + 1] = nl.load(x[:, j : j + 1])
        nl.store(out, t)
        return out

    np.testing.assert_array_equal(kernel(ones(4, 6)), ones(4, 6))


def test_a_part_that_is_left_out():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.ndarray(x.shape, x.dtype)
        for j in nl.affine_range(x.shape[1] - 1):
            t[:, j : j + 1] = nl.load(x[:, j : j + 1])
        nl.store(out, t)  # here
        return out

    diagnosed(UninitializedReadError, r"4 of 24 elements .* \[0, 5\]", kernel, ones(4, 6))


# -- races


def rows_of(x, offset):
    """Two rows an instance."""
    out = like(x)
    i, j = nl.arange(2)[:, None], nl.arange(x.shape[1])[None, :]
    at = offset() + i
    nl.store(out[at, j], nl.load(x[at, j]))  # here
    return out


def test_instances_that_write_the_same_rows():
    kernel = Kernel(rows_of)[4]
    report = diagnosed(RaceError, "that instance", kernel, ones(8, 4), lambda: nl.program_id(0))
    assert "instance (1,) writes 4 elements" in str(report)
    assert "instance (0,)" in str(report)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(kernel(x, lambda: 2 * nl.program_id(0)), x)


def test_instances_that_all_do_the_same_work():
    """Of no consequence on hardware: simulate_kernel, which AWS's examples call so, only warns."""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    kernel = Kernel(rows_of)[4]
    diagnosed(RaceError, "that instance", kernel, x, lambda: 6)
    with (
        pytest.warns(NkiWarning, match="24 of 32 elements of the output"),
        pytest.warns(NkiWarning, match="that instance"),
    ):
        got = simulate_kernel(kernel, x, lambda: 6)
    np.testing.assert_array_equal(got[6:], x[6:])
    with pytest.raises(RaceError):  # what the one allows does not leak into the other
        kernel(x, lambda: 6)


def added_to_itself(x):
    """All instances do the same, but each adds to what it finds."""
    out = like(x)
    nl.store(out, nl.load(x))
    nl.store(out, nl.load(out) + nl.load(x))
    return out


@pytest.mark.parametrize("body", [added_to_itself, lambda x: rows_of(x, lambda: nl.program_id(0))])
def test_instances_that_do_not_write_the_same_race_there_too(body):
    with pytest.raises(RaceError):
        simulate_kernel(Kernel(body)[4], ones(8, 4))


def test_instances_that_differ_in_an_axis_the_offset_ignores():
    kernel = Kernel(rows_of)[4, 2]
    report = diagnosed(RaceError, "that instance", kernel, ones(8, 4), lambda: 2 * nl.program_id(0))
    assert "instance (0, 1) writes" in str(report)


def exchange(x, first_reads):
    """In place: each instance writes its own half, and reads the other's."""
    half = x.shape[0] // 2
    mine, other = nl.program_id(0) * half, (1 - nl.program_id(0)) * half
    t = nl.load(x[mine if nl.program_id(0) == first_reads else other, :].reshape((1, -1)))
    nl.store(x[mine, :].reshape((1, -1)), t)


@pytest.mark.parametrize("first_reads", [0, 1])
def test_reading_what_another_instance_writes(first_reads):
    # Whether the reader is traced before the writer or after it.
    with pytest.raises(RaceError, match="reads"):
        Kernel(exchange)[2](ones(2, 4), first_reads)


def test_instances_with_their_own_scratch_do_not_race():
    @Kernel
    def kernel(x):
        out = like(x)
        scratch = nl.ndarray((1, x.shape[1]), x.dtype, buffer=nl.private_hbm)
        p = nl.program_id(0)
        nl.store(scratch, nl.load(x[p : p + 1]))
        nl.store(out[p : p + 1], nl.load(scratch) * 2)
        return out

    np.testing.assert_array_equal(kernel[3](ones(3, 4)), 2 * ones(3, 4))


def test_shared_tensors_are_the_same_for_all_instances():
    @Kernel
    def kernel(x):
        out = nl.ndarray((1, 1 + nl.program_id(0)), x.dtype, buffer=nl.shared_hbm)  # here
        nl.store(out, nl.zeros(out.shape, x.dtype))
        return out

    diagnosed(RaceError, "declares shared HBM", kernel[2], ones(1, 1))


# -- outputs


def test_an_output_that_nothing_writes():
    @Kernel
    def kernel(x):
        return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)  # here

    diagnosed(OutputError, "which nothing writes", kernel, ones(2, 2))


def test_a_kernel_that_leaves_no_result_is_told_so():
    def kernel(x):
        nl.exp(nl.load(x))

    with pytest.warns(NkiWarning, match="kernel kernel leaves no result") as caught:
        assert Kernel(kernel)(ones(2, 2)) is None
    assert caught[0].lineno == kernel.__code__.co_firstlineno


@pytest.mark.filterwarnings("error::nkisim.NkiWarning")
def test_what_it_prints_or_writes_in_place_is_one(capsys):
    def prints(x):
        nl.device_print("x is ", nl.load(x))

    def writes(x):
        nl.store(x, nl.exp(nl.load(x)))

    Kernel(prints)(ones(2, 2))
    assert "x is" in capsys.readouterr().out
    x = ones(2, 2)
    Kernel(writes)(x)
    np.testing.assert_allclose(x, np.exp(1))


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16, np.int16, np.uint8])
def test_what_an_output_leaves_open_is_poisoned(dtype):
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out[:, 0:2], nl.load(x[:, 0:2]))
        return out

    x = ones(2, 5, dtype=dtype)
    with pytest.warns(NkiWarning, match="6 of 10 elements of the output"):
        got = kernel(x)
    np.testing.assert_array_equal(got[:, :2], x[:, :2])
    left = got[:, 2:].astype(np.float64)
    integer = np.dtype(dtype).kind in "iu"
    assert (left == np.iinfo(dtype).min).all() if integer else np.isnan(left).all()


def test_an_output_in_sbuf():
    @Kernel
    def kernel(x):
        return nl.load(x)  # here

    diagnosed(OutputError, "returns 'x_tile'", kernel, ones(2, 2))


def test_a_part_as_an_output():
    @Kernel
    def kernel(x):
        out = like(x)  # here
        nl.store(out, nl.load(x))
        return out[0:1]

    with pytest.raises(OutputError, match="returns a part of"):
        kernel(ones(2, 2))


def test_an_output_that_only_one_instance_has():
    # nl.hbm is private: the other instances' rows are in tensors that nobody sees.
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        p = nl.program_id(0)
        nl.store(out[p : p + 1], nl.load(x[p : p + 1]))
        return out

    with pytest.raises(OutputError, match="shared_hbm"):
        kernel[2](ones(2, 2))


def test_parameters_are_not_to_be_written_beside_an_output():
    @Kernel
    def kernel(x):
        out = like(x)
        t = nl.load(x)
        nl.store(x, t)  # here
        nl.store(out, t)
        return out

    report = diagnosed(ParameterError, "writes its parameter 'x'", kernel, ones(2, 2))
    assert report.code == "err_cannot_update_immutable_parameter"


def test_shapes_that_do_not_fit():
    @Kernel
    def kernel(x):
        out = like(x)
        nl.store(out, nl.load(x[:, 0:3]))  # here
        return out

    diagnosed(ShapeError, "does not fit", kernel, ones(2, 8))


# -- modes


def garbage(x):
    out = like(x)
    t = nl.ndarray(x.shape, x.dtype)
    nl.store(out, t)  # here
    return out


def test_a_check_can_be_turned_down():
    kernel = Kernel(garbage)
    with nkisim.checks(uninitialized="warn", output="off"):
        with pytest.warns(NkiWarning, match="that nothing wrote") as caught:
            kernel(ones(2, 2))
        assert caught[0].filename == __file__
        assert caught[0].message.args[0].count("rule:") == 1
    with nkisim.checks(uninitialized="off", output="off"):
        kernel(ones(2, 2))
    # And is back where it was, also for a kernel that has run without it.
    diagnosed(UninitializedReadError, "that nothing wrote", kernel, ones(2, 2))


def test_modes_come_back_after_an_error():
    with pytest.raises(ZeroDivisionError), nkisim.checks(race="off"):
        raise ZeroDivisionError
    with pytest.raises(RaceError):
        Kernel(rows_of)[2](ones(8, 4), lambda: 0)


@pytest.mark.parametrize("settings", [{"race": "loud"}, {"speed": "off"}])
def test_unknown_checks_and_modes(settings):
    with pytest.raises(ValueError, match="unknown check setting"), nkisim.checks(**settings):
        pass


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("race=off", "ran"),
        ("race=warn, uninitialized=off", "NkiWarning"),
        ("", "RaceError"),
        ("race=loud", "ValueError: unknown check setting race='loud'"),
    ],
)
def test_modes_from_the_environment(run_python, value, says):
    done = run_python(
        """
        import numpy as np, nkisim
        from nkisim.runtime.kernel import Kernel
        from nkisim.frontends.neuronxcc.nki import language as nl

        @Kernel
        def kernel(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x))
            return out

        kernel[2](np.ones((2, 2), np.float32))
        print("ran")
        """,
        env={"NKISIM_CHECKS": value},
        check=False,
    )
    assert says in done.stdout + done.stderr
    assert (done.returncode == 0) == (says in ("ran", "NkiWarning"))


def test_every_check_has_a_line_of_explanation():
    assert all(CHECKS.values())


def test_errors_can_be_sent_between_processes():
    with pytest.raises(KernelError) as caught:
        Kernel(garbage)(ones(2, 2))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


@pytest.mark.parametrize("mode", ["warn", "off"])
@pytest.mark.parametrize("rows", [100, 128])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_read_that_may_pass_is_blamed_on_nothing_else(mode, rows, in_place):
    """A sum that nobody has started: no message about the output, or about the loop."""

    def kernel(x):
        out = nl.ndarray((rows, 1), x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((rows, 1), x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            part = nl.sum(nl.load(x[:, nl.ds(i * 8, 8)]), axis=1, keepdims=True)
            if in_place:
                total += part
            else:
                total[...] = total + part
        nl.store(out, value=total)
        return out

    with nkisim.checks(uninitialized=mode), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        Kernel(kernel)(np.ones((rows, 32), np.float32))
    assert ["that nothing wrote" in str(w.message) for w in shown] == [True] * (mode == "warn")


@pytest.mark.parametrize("on", ["error", "off"])
def test_the_operands_of_an_instruction_are_in_sbuf_at_one_time(on):
    """aws-neuron-sdk issue 1060: a compile error, however little else there is to hold."""

    def kernel_of(columns):
        def twice(x):
            out = like(x)
            left = nl.load(x)
            nl.store(out, nl.add(left, nl.copy(left)))
            return out

        return Kernel(twice), ones(128, columns, dtype=np.float16)

    kernel, x = kernel_of(45_000)
    with nkisim.checks(sbuf=on if on == "off" else "warn"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TileSizeError, match="270,000 bytes a partition of SBUF together"):
            kernel(x)
    kernel, x = kernel_of(30_000)  # 180,000 of 180,224
    np.testing.assert_array_equal(kernel(x), x + x)

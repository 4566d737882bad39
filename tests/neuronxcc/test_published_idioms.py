"""Ways to write a kernel that published ones have, and that the documentation does not show."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest

import nkisim
from nkisim.errors import LoopError, ParameterError, ShapeError, UnsupportedError
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.frontends.neuronxcc.nki import typing as nt

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(function, *arrays):
    return nki.simulate_kernel(nki.jit(function), *arrays)


def out(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


# -- imports and annotations


def test_the_level_that_the_sdk_adds_to_logging_is_there():
    """CS149's harness: import neuronxcc, then logging.disable(logging.OFF)."""
    code = "import nkisim; nkisim.install(); import neuronxcc.nki, logging; print(logging.OFF)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) > logging.CRITICAL


def fill_first(a: nt.tensor[nt.mutable], b: nt.tensor):
    assert isinstance(a, nt.tensor)
    assert not isinstance(3, nt.tensor)
    nl.store(a, nl.load(b))
    return a


def test_tensors_may_be_annotated_as_mutable_and_told_by_isinstance():
    a, b = np.zeros((4, 6), np.float32), numbers(4, 6)
    np.testing.assert_array_equal(run(fill_first, a, b), b)
    np.testing.assert_array_equal(a, b)


def fill_quoted(a: "nt.mutable_tensor", b):  # noqa: UP037
    nl.store(a, nl.load(b))
    return a


def test_quoted_annotations_count():
    a, b = np.zeros((4, 6), np.float32), numbers(4, 6)
    np.testing.assert_array_equal(run(fill_quoted, a, b), b)


def test_a_scalar_of_the_device_is_named_as_not_supported():
    with pytest.raises(UnsupportedError, match=r"nki\.typing\.scalar"):
        nt.scalar(True)


# -- masks of a matmul


@pytest.mark.parametrize("columns", [0, 1, 50, 128])
def test_a_part_of_a_product_is_added_to_a_part_of_the_tile(columns):
    def kernel(a, b):
        y, k, n = out(128, 128), nl.arange(128)[:, None], nl.arange(128)[None, :]
        x, w = nl.load(a), nl.load(b)
        total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        for _ in range(2):
            total += nisa.nc_matmul(x[k, n], w[k, n][n < columns])
        nl.store(y, total)
        return y

    a, b = numbers(128, 128), numbers(128, 128)
    expected = 2 * a.T @ b
    expected[:, columns:] = 0
    np.testing.assert_allclose(run(kernel, a, b), expected, atol=1e-4)


def test_a_mask_that_an_operand_has_may_be_said_again():
    def kernel(a, b):
        y, k, n = out(80, 128), nl.arange(128)[:, None], nl.arange(128)[None, :]
        x, w = nl.load(a), nl.load(b)
        product = nisa.nc_matmul(x[k, n][n < 80], w[0:128, 0:128], mask=n < 80)
        nl.store(y, nl.copy(product[0:80, 0:128]))
        return y

    a, b = numbers(128, 128), numbers(128, 128)
    np.testing.assert_allclose(run(kernel, a, b), (a.T @ b)[:80], atol=1e-4)


@pytest.mark.filterwarnings("ignore:nc_matmul reaches:nkisim.NkiWarning")
def test_a_mask_of_a_masked_operand_is_in_the_coordinates_of_the_whole():
    def kernel(a, b):
        y, k = out(128, 96), nl.arange(128)[:, None]
        m, n = nl.arange(128)[None, :], nl.arange(96)[None, :]
        x, w = nl.load(a), nl.load(b)
        total = nl.zeros((128, 96), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(x[k, m][m >= 16], w[k, n], mask=m < 64)
        nl.store(y, total)
        return y

    a, b = numbers(128, 128), numbers(128, 96)
    expected = a.T @ b
    expected[:16] = expected[64:] = 0
    np.testing.assert_allclose(run(kernel, a, b), expected, atol=1e-4)


def test_it_is_asked_which_operand_a_mask_is_of():
    def kernel(a, b):
        n = nl.arange(128)[None, :]
        return nisa.nc_matmul(nl.load(a), nl.load(b), mask=n < 80)

    with pytest.raises(ParameterError, match="rows of the result or the columns of the result"):
        run(kernel, numbers(128, 128), numbers(128, 128))


def test_a_transpose_by_an_identity_keeps_what_is_defined():
    def kernel(a):
        y, i, j = out(128, 100), *nl.mgrid[0:128, 0:128]
        x = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
        x[i, j] = nl.load(a[i, j], mask=i < 100)
        eye = nl.load(nl.shared_constant(np.identity(128, np.float32)))
        turned = nl.copy(nisa.nc_matmul(x, eye, is_transpose=True))
        nl.store(y, turned[:, 0:100])
        return y

    a = numbers(100, 128)
    np.testing.assert_array_equal(run(kernel, a), a.T)


# -- choosing


@pytest.mark.parametrize("other", ["tile", "number"])
def test_where_takes_conditions_on_indices(other):
    def kernel(a, b):
        y, i, j = out(128, 64), *nl.mgrid[0:128, 0:64]
        unlike = nl.load(b) if other == "tile" else 7.0
        nl.store(y, nl.where((i < 100) & (j > 3), nl.load(a), unlike))
        return y

    a, b = numbers(128, 64), numbers(128, 64)
    expected = (b if other == "tile" else np.full_like(b, 7)).copy()
    expected[:100, 4:] = a[:100, 4:]
    np.testing.assert_array_equal(run(kernel, a, b), expected)


def by_position(t, i, j):
    return nisa.affine_select(pred=i + 0 * j < 100, on_true_tile=t, on_false_value=0.0)


def by_data(t, i, j):
    return nl.where(nl.less(nisa.iota(i + 0 * j, nl.int32), 100), t, 0.0)


@pytest.mark.parametrize("choose", [by_position, by_data])
def test_what_is_not_chosen_may_be_undefined(choose):
    def kernel(a):
        y, i, j = out(128, 64), *nl.mgrid[0:128, 0:64]
        t = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        t[i, j] = nl.load(a[i, j], mask=i < 100)
        nl.store(y, choose(t, i, j))
        return y

    a = numbers(100, 64)
    expected = np.zeros((128, 64), np.float32)
    expected[:100] = a
    np.testing.assert_array_equal(run(kernel, a), expected)


def test_what_is_chosen_may_not():
    def kernel(a):
        y, i, j = out(128, 64), *nl.mgrid[0:128, 0:64]
        t = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        t[i, j] = nl.load(a[i, j], mask=i < 100)
        nl.store(y, nisa.affine_select(pred=i + 0 * j < 101, on_true_tile=t, on_false_value=0.0))
        return y

    with pytest.raises(nkisim.KernelError, match="64 of 8,192 elements"):
        nki.jit(kernel)(numbers(100, 64))


# -- axes


@pytest.mark.parametrize(("axis", "along"), [(1, 1), ((1,), 1), ([1, 3], (1, 3)), (-3, 1)])
def test_any_free_axes_are_reduced_with_a_warning(axis, along):
    def kernel(a):
        total = nisa.tensor_reduce(nl.max, nl.load(a), axis=axis)
        y = out(*total.shape)
        nl.store(y, total)
        return y

    a = numbers(16, 3, 4, 5)
    with pytest.warns(nkisim.NkiWarning, match="last free axes only"):
        np.testing.assert_array_equal(run(kernel, a), a.max(along))


@pytest.mark.filterwarnings("error::nkisim.NkiWarning")
@pytest.mark.parametrize("axis", [3, [2, 3], (1, 2, 3), -1])
def test_the_last_ones_without(axis):
    def kernel(a):
        total = nisa.tensor_reduce(nl.add, nl.load(a), axis=axis)
        y = out(*total.shape)
        nl.store(y, total)
        return y

    a = numbers(16, 3, 4, 5)
    along = tuple(axis) if isinstance(axis, list) else axis
    found = run(kernel, a)
    np.testing.assert_allclose(found.reshape(16, -1), a.sum(along).reshape(16, -1), rtol=1e-5)


# -- indices


def count_up(a):
    y, data = out(8, 6), nl.load(a)
    for i in nl.sequential_range(4):
        step = nisa.iota(i, dtype=nl.uint32).broadcast_to(data.shape)
        data[...] = data + step
    nl.store(y, data)
    return y


def test_a_loop_index_becomes_a_tile():
    a = numbers(8, 6)
    np.testing.assert_allclose(run(count_up, a), a + 6, rtol=1e-6)


@pytest.mark.parametrize("mode", [nisa.oob_mode.skip, "skip"])
def test_loads_and_stores_pass_over_rows_that_are_not_there(mode):
    def kernel(a, rows):
        y = out(64, 8)
        nl.store(y, nl.zeros((64, 8), nl.float32))
        p, f = nl.arange(32)[:, None], nl.arange(8)[None, :]
        at = nl.load(rows)
        t = nl.load(a[at[p, 0], f], mode=mode)
        nl.store(y[at[p, 0], f], t, mode=mode)
        return y

    a, rows = numbers(64, 8), np.arange(-8, 24, dtype=np.int32)[:, None] * 3
    expected, there = np.zeros_like(a), [r for r in rows[:, 0] if 0 <= r < 64]
    expected[there] = a[there]
    np.testing.assert_array_equal(run(kernel, a, rows), expected)


def test_another_mode_is_refused():
    def kernel(a, rows):
        at = nl.load(rows)
        nl.load(a[at[nl.arange(32)[:, None], 0], nl.arange(8)[None, :]], mode="wrap")

    with pytest.raises(ParameterError, match="out of range"):
        run(kernel, numbers(64, 8), np.zeros((32, 1), np.int32))


def test_a_value_that_is_not_there_has_the_largest_index():
    def kernel(a):
        y, t = nl.ndarray((4, 8), nl.uint32, buffer=nl.shared_hbm), nl.load(a)
        nl.store(y, nisa.nc_find_index8(data=t, vals=nl.full((4, 8), 5.0, nl.float32)))
        return y

    a = np.zeros((4, 16), np.float32)
    a[1, 3] = 5
    expected = np.full((4, 8), 2**32 - 1, np.uint32)
    expected[1, 0] = 3  # of a value that is given 8 times and is there once
    np.testing.assert_array_equal(run(kernel, a), expected)


# -- masks


def test_a_condition_on_a_loop_index_masks_an_operand():
    def kernel(a, b):
        y, x, w = out(8, 16), nl.load(a), nl.load(b)
        k, m = nl.arange(32)[:, None], nl.arange(8)[None, :]
        total = nl.zeros((8, 16), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(3):
            total += nisa.nc_matmul(x[k, m][i < 2], w)
        nl.store(y, total)
        return y

    a, b = numbers(32, 8), numbers(32, 16)
    np.testing.assert_allclose(run(kernel, a, b), 2 * a.T @ b, atol=1e-5)


def test_a_mask_may_leave_out_the_axes_that_an_index_does():
    def kernel(a):
        y, (p, f) = out(16, 4, 8), nl.mgrid[0:16, 0:4]
        t = nl.ndarray((16, 4, 8), nl.float32, buffer=nl.sbuf)
        t[...] = 7
        t[p, f] = nl.load(a[p, f], mask=(p < 10) & (p + f > 2))
        nl.store(y, t)
        return y

    a, (p, f) = numbers(16, 4, 8), np.mgrid[0:16, 0:4]
    expected = np.where(((p < 10) & (p + f > 2))[:, :, None], a, 7)
    np.testing.assert_array_equal(run(kernel, a), expected)


# -- order


def carry_on(a):
    y = out(4, 16, 8)
    t = nl.ndarray((5, nl.par_dim(16), 8), nl.float32, buffer=nl.sbuf)
    t[0] = nl.load(a[0])
    for i in nl.affine_range(4, precise_schedule=True):
        t[i + 1] = nl.load(a[i + 1])
        nl.store(y[i], t[i])
    return y


def test_a_loop_with_a_precise_schedule_keeps_its_order():
    a = numbers(5, 16, 8)
    np.testing.assert_array_equal(run(carry_on, a), a[:4])


def once_for_all(a):
    y = out(4, 16, 8)
    t = nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        t[...] = nisa.tensor_scalar(nl.load(a), nl.multiply, 2.0, mask=i == 0)
        nl.store(y[i], nl.copy(t))
    return y


def test_what_an_earlier_iteration_wrote_is_read_with_a_warning_where_the_sdk_is_stood_in_for():
    a = numbers(16, 8)
    with pytest.warns(nkisim.NkiWarning, match="which iteration 0 has written"):
        np.testing.assert_array_equal(run(once_for_all, a)[3], 2 * a)
    with pytest.warns(nkisim.NkiWarning, match="which iteration 0 has written"):
        nkisim.profile(nki.jit(once_for_all), a)
    with pytest.raises(LoopError, match="which iteration 0 has written"):
        nki.jit(once_for_all)(a)


def summed_up(a):
    y, total = out(16, 1), nl.zeros((16, 1), nl.float32)
    for i in nl.affine_range(8):
        total[...] = nl.load(a[:, i : i + 1]) - total
    nl.store(y, total)
    return y


def running_total(a):
    y, total = out(8, 16, 1), nl.zeros((16, 1), nl.float32)
    for i in nl.affine_range(8):
        total += nl.load(a[:, i : i + 1])
        nl.store(y[i], nl.copy(total))
    return y


@pytest.mark.parametrize("kernel", [summed_up, running_total])
def test_what_iterations_write_again_and_again_is_an_error(kernel):
    with pytest.raises(LoopError):
        run(kernel, numbers(16, 8))


def test_loops_are_run_as_written_if_the_kernel_says_so():
    as_written = nki.compiler.skip_middle_end_transformations(nki.jit(summed_up))
    with pytest.warns(nkisim.NkiWarning, match="affine_range"):
        as_written(numbers(16, 8))


def all_the_same(a):
    y = out(16, 8)
    nl.store(y, nl.load(a))
    return y


def test_instances_that_do_the_same_are_profiled_with_a_warning():
    with pytest.warns(nkisim.NkiWarning, match="instance"):
        found = nkisim.profile(nki.jit(all_the_same)[2], numbers(16, 8))
    assert (
        found.instructions == 2 * nkisim.profile(nki.jit(all_the_same), numbers(16, 8)).instructions
    )


# -- types


def test_a_gather_of_integers_costs_what_one_of_their_size_does():
    def kernel(a, rows):
        y = nl.ndarray((128, 512), a.dtype, buffer=nl.shared_hbm)
        at = nl.load(rows)
        nl.store(y, nl.load(a[at[nl.arange(128)[:, None], 0], nl.arange(512)[None, :]]))
        return y

    def latency(dtype):
        shapes = ((256, 512), dtype), ((128, 1), np.int32)
        return nkisim.profile(kernel, *(nkisim.TensorSpec(s, np.dtype(t)) for s, t in shapes))

    assert latency(np.int32).latency_us == latency(np.float32).latency_us
    assert latency(np.uint8).latency_us < latency(np.float32).latency_us


def test_tfloat32_is_named():
    def kernel(a):
        nl.load(a, dtype=nl.tfloat32)

    with pytest.raises(UnsupportedError, match="tfloat32"):
        run(kernel, numbers(4, 4))


# -- partitions


def into_row_16(value):
    def kernel(a):
        y, t = out(48, 8), nl.zeros((48, 8), nl.float32)
        t[16:32, :] = value(a)
        nl.store(y, t)
        return y

    return kernel


@pytest.mark.filterwarnings("error::nkisim.NkiWarning")
def test_a_load_writes_from_any_partition_on():
    a = numbers(16, 8)
    np.testing.assert_array_equal(run(into_row_16(nl.load), a)[16:32], a)


def test_an_engine_does_not():
    with pytest.warns(nkisim.NkiWarning, match="from partition 16 on"):
        run(into_row_16(lambda a: nl.exp(nl.load(a))), numbers(16, 8))


# -- arguments


def test_extents_of_a_reshape_are_integers():
    def kernel(a):
        nl.load(a).reshape((4, 5 / 2, 2))

    with pytest.raises(ShapeError, match=r"reshaped to \(4, 2.5, 2\)"):
        run(kernel, numbers(4, 6))


def test_python_names_the_function_that_the_kernel_called():
    with pytest.raises(TypeError, match=r"nl\.ndarray missing 1 required"):
        run(lambda a: nl.ndarray((4, 4), buffer=nl.sbuf), numbers(4, 4))


WITH_CODES = {
    "err_ambiguous_tensor_truth_value": lambda t: t > 1 and t < 3,
    "err_dynamic_control_flow_not_supported": lambda t: bool(t[0:1, 0:1]),
    "err_activation_scale_scalar_or_vector": lambda t: nisa.activation(nl.exp, t, scale=t),
}


@pytest.mark.parametrize("code", WITH_CODES)
def test_errors_have_the_codes_of_the_manual(code):
    with pytest.raises(nkisim.KernelError) as caught:
        run(lambda a: WITH_CODES[code](nl.load(a)), numbers(4, 6))
    assert caught.value.code == code


def test_hbm_is_no_operand():
    with pytest.raises(nkisim.KernelError) as caught:
        run(nl.exp, numbers(4, 6))
    assert caught.value.code == "err_unsupported_memory"


@pytest.mark.parametrize("axes", ["mgrid", "arange"])
def test_an_operand_may_have_a_mask_for_each_axis(axes):
    """nki-autotune: tensor[idx.p, idx.x][row_mask][column_mask]."""

    def kernel(a):
        p, f = nl.mgrid[0:128, 0:64]
        if axes == "arange":
            p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
        y = out(100, 50)
        nl.store(y, nl.exp(nl.load(a)[p, f][p < 100][f < 50]))
        return y

    x = numbers(128, 64)
    np.testing.assert_allclose(run(kernel, x), np.exp(x[:100, :50]), rtol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (4, 8), (8, 4), (1, 4), (4, 1)])
def test_rows_and_columns_of_a_partition_spread_over_each_other(rows, columns):
    """vLLM for Neuron: tensor_tensor of (128, 1, k) and (128, b, 1), also where b is k."""

    def kernel(a, b):
        y = out(128, rows, columns)
        nl.store(y, nisa.tensor_tensor(nl.load(a), nl.load(b), op=nl.subtract))
        return y

    a, b = numbers(128, 1, columns), numbers(128, rows, 1)
    np.testing.assert_array_equal(run(kernel, a, b), a - b)


# -- names, and axes that a value lacks


def test_instructions_without_further_keywords_are_named():
    def kernel(x):
        result = out(*x.shape)
        nisa.dma_copy(dst=result, src=nl.load(x, name="in"), name="out")
        return result

    x = numbers(8, 4)
    np.testing.assert_array_equal(run(kernel, x), x)
    with pytest.raises(ParameterError, match="nmae"):
        run(lambda x: nisa.dma_copy(dst=out(8, 4), src=nl.load(x), nmae="out"), x)


@pytest.mark.parametrize("columns", [1, 4])
def test_axes_that_a_value_lacks_are_its_last_ones(columns):
    """A public kernel that picks experts assigns a column to a part of three axes."""

    def kernel(x):
        wide = nl.zeros((nl.par_dim(128), 64, 4), x.dtype)
        wide[0:128, 0:64, 0:columns] = nl.load(x)[0:128, 3:4]
        result = out(128, 64, 4)
        nl.store(result, wide)
        return result

    x = numbers(128, 8)
    want = np.zeros((128, 64, 4), np.float32)
    want[:, :, :columns] = x[:, 3, None, None]
    np.testing.assert_array_equal(run(kernel, x), want)


def test_axes_that_a_value_lacks_are_not_its_first_ones():
    def kernel(x):
        wide = nl.zeros((nl.par_dim(128), 64, 8), x.dtype)
        wide[...] = nl.load(x)
        return wide

    with pytest.raises(ShapeError, match=r"\[128, 8\]|128, 64, 8"):
        run(kernel, numbers(128, 8))

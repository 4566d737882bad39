"""Dense indices: of `i_p, i_f = nl.mgrid[...]` each has both axes, and often one is used alone.

Also columns and rows of tiles, which have one axis and stand for tiles of two.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.errors import IndexingError, ShapeError


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def shapes(kernel, *args):
    """Opcode and shape of the first output of each instruction."""
    return [(i.opcode, i.outs[0].shape) for i in kernel.specialize(args, {}).program.instructions]


def test_of_two_grids_only_the_axes_that_vary_count(compute):
    def body(t):
        p, _ = nl.mgrid[0:12, 0:20]
        _, f = nl.mgrid[0:1, 0:6]
        out = nl.ndarray((12, 18), dtype=t.dtype)
        for k in nl.affine_range(3):
            out[p, 6 * k + f] = nl.negative(t[p, 6 * k + f + 2])
        return out

    x = numbers(12, 20)
    np.testing.assert_array_equal(compute(body, x), -x[:, 2:])


def test_indices_that_vary_over_different_extents_clash(compute):
    def body(t):
        return t[nl.mgrid[0:12, 0:20][0], nl.mgrid[0:1, 0:6][1] + nl.mgrid[0:6, 0:1][0]]

    with pytest.raises(ShapeError, match="do not broadcast"):
        compute(body, numbers(12, 20))


@nki.jit
def softmax_with_dense_indices(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    p, f = nl.mgrid[0:rows, 0:columns]
    t = nl.load(x)
    stats = nl.ndarray((rows, 3), dtype=nl.float32)
    stats[p, 0] = nisa.tensor_reduce(np.max, t[p, f], axis=(1,), negate=True)
    e = nisa.activation_reduce(
        np.exp, t[p, f], bias=stats[p, 0], reduce_op=nl.add, reduce_res=stats[p, 1]
    )
    stats[p, 2] = nl.divide(1.0, stats[p, 1])
    wide = stats[p, 2].broadcast_to((rows, 2 * columns))
    nl.store(out, nl.multiply(e, wide[:, 0:columns]))
    return out


def test_a_column_named_by_a_dense_index():
    x = numbers(32, 50)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(
        softmax_with_dense_indices(x), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7
    )
    seen = shapes(softmax_with_dense_indices, x)
    assert ("tensor_scalar", (32, 1)) in seen  # one division a partition, not one an element


def test_operations_on_repeats_keep_their_shape(compute):
    def body(t):
        p, _ = nl.mgrid[0:8, 0:30]
        wide = nl.exp(t[p, 2])
        assert wide.shape == (8, 30)
        return wide

    x = numbers(8, 5)
    want = np.broadcast_to(np.exp(x[:, 2:3]), (8, 30))
    np.testing.assert_allclose(compute(body, x), want, rtol=1e-6)


def test_a_row_repeated_over_partitions_is_computed_on_all_of_them(compute):
    def body(t):
        _, f = nl.mgrid[0:1, 0:5]
        return nl.add(t[f * 0, f].broadcast_to((1, 5)), t)

    x = numbers(1, 5)
    np.testing.assert_array_equal(compute(body, x), x + x)


def test_what_varies_along_the_repeats_of_a_target_is_written_in_order(compute):
    def body(t):
        p, _ = nl.mgrid[0:8, 0:5]
        out = nl.ndarray((8, 1), dtype=t.dtype)
        out[p, 0] = t
        return out

    x = numbers(8, 5)
    np.testing.assert_array_equal(compute(body, x), x[:, 4:])


def test_columns_and_rows_take_the_indices_of_tiles(compute):
    def body(t):
        out = nl.ndarray((16, 3), dtype=t.dtype)
        column, target = t[:, 4], out[:, 1]
        out[:, 0] = nl.negative(column[:, 0])
        target[:, 0] = nl.add(column[nl.arange(16)[:, None], 0], 1.0)
        out[:, 2] = nl.multiply(column, 2.0)
        return out

    x = numbers(16, 9)
    want = np.stack([-x[:, 4], x[:, 4] + 1, x[:, 4] * 2], axis=1)
    np.testing.assert_array_equal(compute(body, x), want)


def test_a_column_has_no_third_axis(compute):
    with pytest.raises(IndexingError, match="3 indices"):
        compute(lambda t: t[:, 4][:, 0, 0], numbers(16, 9))

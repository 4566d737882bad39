"""Views of tiles and their assignment: parts, blocks, reshapes, reinterpretations."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim import errors


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(body, x):
    """What body(tile of x) returns, stored."""

    @nki.jit
    def kernel(x):
        tile = body(nl.load(x))
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return kernel(x)


@st.composite
def splits(draw, n):
    """Sizes whose product is n."""
    sizes = []
    while n > 1 and draw(st.booleans()):
        d = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
        sizes.append(d)
        n //= d
    return [*sizes, n]


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_reshapes_of_parts_are_numpys(data):
    shape = (3, *data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    x = numbers(*shape)
    cut = [slice(None)]
    for n in shape[1:]:
        low = data.draw(st.integers(0, n - 1))
        cut.append(slice(low, data.draw(st.integers(low + 1, n)), data.draw(st.integers(1, 2))))
    part = x[tuple(cut)]
    new = (3, *data.draw(splits(part[0].size)))

    def body(t):
        return nl.copy(t[tuple(cut)].reshape(new))

    if np.shares_memory(part.reshape(new), x):
        np.testing.assert_array_equal(run(body, x), part.reshape(new))
    else:  # NumPy has to copy, and an access pattern cannot
        with pytest.raises(errors.ShapeError, match="evenly spaced"):
            run(body, x)


def test_merging_and_splitting_free_axes():
    x = numbers(4, 6, 8)
    got = run(lambda t: nl.copy(t[:, 2:4].reshape(4, 2, 2, 4)[:, :, 1]), x)
    np.testing.assert_array_equal(got, x[:, 2:4].reshape(4, 2, 2, 4)[:, :, 1])
    got = run(lambda t: nl.copy(t[:, 2:4].reshape((4, -1))), x)
    np.testing.assert_array_equal(got, x[:, 2:4].reshape(4, 16))
    with pytest.raises(errors.ShapeError, match="evenly spaced"):
        run(lambda t: t[:, :, 0:4].reshape(4, 24), x)


def test_the_partition_axis_keeps_its_size():
    with pytest.raises(errors.ShapeError, match="partition axis"):
        run(lambda t: t.reshape(8, 24), numbers(4, 48))


def test_hbm_is_reshaped_freely():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows, target = x.reshape(4, 128, 3), out.reshape((4, 128, 3))
        for i in nl.affine_range(4):
            nl.store(target[i], nl.load(rows[i]))
        return out

    x = numbers(512, 3)
    np.testing.assert_array_equal(kernel(x), x)


def test_a_part_of_a_part_stays_in_it():
    with pytest.raises(errors.OutOfBoundsError, match="indexed at 7"):
        run(lambda t: t[:, 0:4][:, 2:8], numbers(4, 16))


@pytest.mark.parametrize("kind", [np.int32, np.int16, np.uint8, nl.bfloat16, np.float32])
def test_views_of_another_type_are_the_same_bits(kind):
    x = numbers(4, 6)
    np.testing.assert_array_equal(
        run(lambda t: nl.copy(t.view(kind)), x).view(np.uint8), x.view(kind).view(np.uint8)
    )
    bits = x.view(np.uint8)
    np.testing.assert_array_equal(
        run(lambda t: nl.copy(t[:, 8:16].view(np.float32)), bits), bits[:, 8:16].view(np.float32)
    )


def test_writing_through_a_view_of_another_type():
    def body(t):
        t.view(np.uint32)[:, 0:2] = 0x3F800000  # 1.0
        return t

    x = numbers(4, 6)
    want = x.copy()
    want[:, :2] = 1.0
    np.testing.assert_array_equal(run(body, x), want)


@pytest.mark.parametrize("rows", [3, 4])
def test_a_tile_written_in_part_seen_as_bytes(rows):
    # As nki-samples' rmsnorm_quant stores fp32 scales after fp8 rows.
    def body(t):
        tile = nl.ndarray((4, 6), dtype=np.float32)
        tile[0:3] = nl.copy(t[0:3])
        return nl.copy(tile.view(np.uint8)[0:rows])

    x = numbers(4, 6)
    if rows == 3:
        np.testing.assert_array_equal(run(body, x), x[:3].view(np.uint8))
    else:
        with pytest.raises(errors.UninitializedReadError, match="24 of 96"):
            run(body, x)


def test_a_tile_written_byte_by_byte_is_written():
    def body(t):
        tile = nl.ndarray((4, 6), dtype=np.float32)
        for start in (0, 1, 2, 3):
            tile.view(np.uint8)[:, start::4] = nl.copy(t[:, start::4])
        return nl.copy(tile)

    x = numbers(4, 6)
    np.testing.assert_array_equal(run(body, x.view(np.uint8)), x)


def test_a_view_needs_whole_elements():
    with pytest.raises(errors.DTypeError, match="last axis"):
        run(lambda t: t.view(np.float32), numbers(4, 6).view(np.uint8)[:, :7].copy())
    with pytest.raises(errors.DTypeError, match="last axis"):
        run(lambda t: t[:, 0:8:2].view(np.uint8), numbers(4, 8))


def test_operand_masks_bound_the_operand():
    x = numbers(8, 6)
    i_p, i_f = nl.arange(8)[:, None], nl.arange(6)[None, :]
    got = run(lambda t: nl.copy(t[(i_p < 5) & (i_f >= 2)]), x)
    np.testing.assert_array_equal(got, x[:5, 2:])
    with pytest.raises(errors.IndexingError, match="not a box"):
        run(lambda t: t[i_f < i_p], x)


def test_block_dimensions():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((2, 3, nl.par_dim(16), 8), dtype=x.dtype, buffer=nl.sbuf)
        i_p, i_f = nl.mgrid[0:16, 0:8]
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                tiles[i, j] = nl.load(x[i, j])
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                tiles[i, j, i_p, i_f] = nl.multiply(tiles[i, j, i_p, i_f], 2.0)
                nl.store(out[i, j], tiles[i][j])
        return out

    x = numbers(2, 3, 16, 8)
    np.testing.assert_array_equal(kernel(x), x * 2)


def test_a_block_tensor_is_no_tile():
    def body(t):
        tiles = nl.zeros((4, nl.par_dim(8), 8), dtype=nl.float32, buffer=nl.sbuf)
        return nl.add(tiles, 32)

    with pytest.raises(errors.IndexingError) as caught:
        run(body, numbers(4, 4))
    assert caught.value.code == "err_failed_to_infer_tile_from_local_tensor"


def test_assignment_under_a_mask_leaves_the_rest():
    i_p, i_f = nl.mgrid[0:8, 0:8]

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.full(x.shape, 7.0, dtype=x.dtype)
        tile[i_p, i_f] = nl.load(x[i_p, i_f], mask=i_f <= i_p)
        tile[...] = nl.multiply(tile, 2.0, mask=i_f < 3)
        nl.store(out, tile)
        return out

    x = numbers(8, 8)
    p, f = np.mgrid[0:8, 0:8]
    want = np.where(f <= p, x, 7)
    np.testing.assert_array_equal(kernel(x), np.where(f < 3, want * 2, want))


def test_assignments_leave_no_copies_in_the_instruction_stream():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(x)
        tile[:, 0:2] = nl.exp(tile[:, 0:2])
        kept = nl.square(tile)
        tile[...] = kept
        nl.store(out, nl.add(tile, kept))
        return out

    x = numbers(4, 5)
    labels = [i.label for i in kernel.specialize((x,), {}).program.instructions]
    # `kept` is read again, so its copy is a real one.
    assert labels.count("tensor_copy") == 1
    want = x.copy()
    want[:, :2] = np.exp(want[:, :2])
    np.testing.assert_allclose(kernel(x), 2 * want**2, rtol=1e-6)


def test_assigning_what_is_too_large():
    with pytest.raises(errors.ShapeError) as caught:
        run(lambda t: t[:, 0:1].__setitem__(..., t), numbers(4, 5))
    assert caught.value.code == "err_store_dst_shape_smaller_than_other_shape"


def test_one_element_is_a_tile():
    x = numbers(4, 5)

    def body(t):
        t[2, 3] = 9.0
        t[1, 1] = t[0, 0]
        return nl.copy(t)

    want = x.copy()
    want[2, 3], want[1, 1] = 9, want[0, 0]
    with pytest.warns(match="from partition"):
        np.testing.assert_array_equal(run(body, x), want)


def test_loading_one_element():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[2, 1])
        assert tile.shape == (1, 1)
        nl.store(out[0, 0], tile)
        return out

    x = numbers(4, 5)
    assert kernel(x) == x[2, 1]


def test_a_spread_row_of_the_tensors_own_shape_is_still_a_part():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm)
        row = nl.load(x)[:, 0:1].broadcast_to((4, 6))
        nl.store(out, row[:, 3:9])
        return out

    with pytest.raises(errors.OutOfBoundsError, match="its size is 6"):
        kernel(np.ones((4, 6), np.float32))


def test_a_tensor_with_block_axes_is_filled_tile_by_tile():
    @nki.jit
    def weighted(x):
        out = nl.ndarray((3, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        sums = nl.ones((3, nl.par_dim(x.shape[0]), x.shape[1]), dtype=x.dtype)
        for i in range(3):
            sums[i] = sums[i] + nl.load(x) * i
            nl.store(out[i], sums[i])
        return out

    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(weighted(x), np.stack([1 + i * x for i in range(3)]))


def test_whole_floats_are_extents(compute):
    """Python's / gives 4.0 for 8 / 2; a published kernel reshapes by that."""
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    got = compute(lambda t: nl.sum(t.reshape((6, 8 / 2, 2)), axis=2), x)
    np.testing.assert_array_equal(got, x.reshape(6, 4, 2).sum(2))


def test_a_tile_of_one_axis_that_nothing_uses_is_passed_over(compute):
    def body(t):
        nl.ndarray((4,), nl.float32)
        return t

    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(compute(body, x), x)

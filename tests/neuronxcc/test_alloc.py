"""Tiles placed by hand with nki.compiler: addresses, rotation, overlap."""

from __future__ import annotations

import functools

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim
from nkisim.errors import MemorySpaceError, NkiWarning, ParameterError, PlacementError

X = np.random.default_rng(0).standard_normal((4, 128, 64)).astype(np.float32)


@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_mod_alloc_rotates_over_its_places(base, counts, data):
    idx = tuple(data.draw(st.integers(0, 9)) for _ in counts)
    place = ncc.sbuf.mod_alloc(base_addr=base, num_free_tiles=tuple(counts)).place
    want = np.ravel_multi_index([i % n for i, n in zip(idx, counts, strict=True)], counts)
    assert place(idx, 128, 100) == (0, base + want * 100)
    place = ncc.sbuf.mod_alloc(base_addr=base, num_par_tiles=tuple(counts)).place
    assert place(idx, 32, 100) == (32 * want, base)
    place = ncc.psum.mod_alloc(base_bank=1, num_bank_tiles=tuple(counts)).place
    assert place(idx, 128, 2048) == (1 + want, 0, 0)


@pytest.mark.parametrize("counts", [(), (1,), (4,), (1, 7)])
def test_mod_alloc_of_a_tensor_without_blocks_is_its_base(counts):
    assert ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=counts).place((), 128, 100) == (0, 64)
    assert ncc.psum.mod_alloc(base_bank=3, num_bank_tiles=counts).place((), 128, 100) == (3, 0, 0)


def copy_kernel(buffer, loops_apart=False):
    """Copies X through four placed tiles: load and store in one loop, or in two."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((4, nl.par_dim(128), 64), dtype=x.dtype, buffer=buffer)
        if loops_apart:
            for i in nl.affine_range(4):
                tiles[i] = nl.load(x[i])
            for i in nl.affine_range(4):
                nl.store(out[i], tiles[i])
        else:
            for i in nl.affine_range(4):
                tiles[i] = nl.load(x[i])
                nl.store(out[i], tiles[i])
        return out

    return kernel


def rotating(places):
    return ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(places,))


def test_two_places_are_enough_for_tiles_that_take_turns():
    kernel = nki.jit(copy_kernel(rotating(2)))
    np.testing.assert_array_equal(kernel(X), X)
    tiles = next(b for b in kernel.specialize((X,), {}).program.trace.buffers if b.place)
    assert [p.address for p in tiles.placed] == [0, 256, 0, 256]


def test_and_too_few_for_tiles_that_live_at_once():
    np.testing.assert_array_equal(nki.jit(copy_kernel(rotating(4), True))(X), X)
    with pytest.raises(PlacementError, match=r"reads tile 0 .* after tile 2 .* written over it"):
        nki.jit(copy_kernel(rotating(2), True))(X)


def test_tiles_of_two_block_axes_have_a_place_each():
    def kernel(x, places):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        buffer = ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=places)
        tiles = nl.ndarray((2, 2, nl.par_dim(128), 64), dtype=x.dtype, buffer=buffer)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                tiles[i, j] = nl.load(x[2 * i + j])
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                nl.store(out[2 * i + j], tiles[i, j])
        return out

    np.testing.assert_array_equal(nki.jit(kernel)(X, (2, 2)), X)
    with pytest.raises(PlacementError, match=r"reads tile 0 .* after tile 2 .* written over it"):
        nki.jit(kernel)(X, (1, 2))


def test_force_auto_alloc_ignores_the_places():
    kernel = ncc.force_auto_alloc(nki.jit(copy_kernel(rotating(2), True)))
    np.testing.assert_array_equal(kernel(X), X)


def test_decorators_keep_a_kernel_a_kernel():
    @ncc.enable_stack_allocator(log_level=10)
    @ncc.skip_middle_end_transformations
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        return out

    assert kernel.__name__ == "kernel"
    np.testing.assert_array_equal(kernel(X), X)


def test_overlap_of_two_tensors():
    def kernel(second):
        @nki.jit
        def inner(x):
            out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
            a = nl.ndarray((128, 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
            b = nl.ndarray((128, 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=second))
            c = nl.ndarray((128, 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=4096))
            a[...] = nl.load(x[0])
            b[...] = nl.load(x[1])
            c[...] = nl.add(a, b)
            nl.store(out, c)
            return out

        return inner

    np.testing.assert_array_equal(kernel(256)(X), X[0] + X[1])
    with pytest.raises(PlacementError, match="written over"):
        kernel(255)(X)
    with nkisim.checks(placement="off"):
        np.testing.assert_array_equal(kernel(255)(X), X[0] + X[1])


def declare(shape, buffer, dtype=nl.float32):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        nl.ndarray(shape, dtype=dtype, buffer=buffer)
        return out

    kernel(X)
    return next(b for b in kernel.specialize((X,), {}).program.trace.buffers if b.placed)


@pytest.mark.parametrize(
    ("shape", "buffer", "message"),
    [
        ((128, 64), ncc.sbuf.mod_alloc(base_addr=-1), "bytes 0..180223"),
        ((128, 64), ncc.sbuf.mod_alloc(base_addr=180_000), "bytes 0..180223"),
        ((128, 64), ncc.sbuf.alloc(lambda i, p, f: (32, 0)), "starts at one of"),
        ((40, 64), ncc.sbuf.alloc(lambda i, p, f: (32, 0)), "starts at one of"),
        ((8, 64), ncc.sbuf.alloc(lambda i, p, f: (8, 0)), "starts at one of"),
        ((8, 64), ncc.sbuf.alloc(lambda i, p, f: 0), "returns"),
        ((8, 64), ncc.psum.alloc(lambda i, p, f: (0, 0)), "returns"),
        ((8, 64), ncc.psum.alloc(lambda i, p, f: (8, 0, 0)), "8 banks"),
        ((8, 64), ncc.psum.alloc(lambda i, p, f: (0, 0, 16)), "byte 0"),
    ],
)
def test_illegal_places(shape, buffer, message):
    with pytest.raises(PlacementError, match=message):
        declare(shape, buffer)


@pytest.mark.parametrize(("rows", "start"), [(128, 0), (64, 64), (33, 64), (32, 96), (1, 32)])
def test_legal_start_partitions(rows, start):
    declare((rows, 64), ncc.sbuf.alloc(lambda i, p, f: (start, 0)))


def test_limits_of_mod_alloc():
    for make in (
        lambda: ncc.sbuf.mod_alloc(base_addr=0, base_partition=32),
        lambda: ncc.psum.mod_alloc(base_bank=0, base_addr=4),
        lambda: ncc.psum.mod_alloc(base_bank=0, num_free_tiles=(2,)),
        lambda: ncc.sbuf.alloc(3),
        lambda: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2, 2)).place((1,), 1, 1),
    ):
        with pytest.raises(ParameterError):
            make()


def test_placed_tiles_are_created_empty():
    @nki.jit
    def kernel(x):
        nl.zeros((8, 8), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))

    with pytest.raises(MemorySpaceError) as caught:
        kernel(X)
    assert "init_value" in caught.value.code


def test_all_tiles_are_placed_or_none():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.ndarray((128, 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        a[...] = nl.load(x[0])
        nl.store(out, a + 1)  # the sum is a tile that nobody placed
        return out

    with pytest.raises(PlacementError, match="all of its on-chip tensors directly, or none"):
        kernel(X)


def test_auto_alloc_is_the_plain_buffer():
    np.testing.assert_array_equal(nki.jit(copy_kernel(ncc.sbuf.auto_alloc()))(X), X)
    np.testing.assert_array_equal(nki.jit(copy_kernel(ncc.sbuf))(X), X)
    assert nl.tile_size.sbuf_min_align == nl.constants.sbuf_min_align


def test_an_allocation_function_may_take_its_values_by_name_beside_others():
    def placed(bank_of, idx, pdim_size, fdim_size):
        assert (pdim_size, fdim_size) == (128, 256)
        return bank_of[idx], 0, 0

    banks = functools.partial(placed, bank_of={(0,): 3, (1,): 1, (2,): 0, (3,): 6})
    tiles = declare((4, nl.par_dim(128), 64), ncc.psum.alloc(banks))
    assert [p.address // 2048 for p in tiles.placed] == [3, 1, 0, 6]


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_an_address_that_grows_in_a_loop_is_that_of_the_first_iteration(loop):
    """The compiler traces the body of a loop once, with the address that it has then."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        address = 64
        for i in loop(4):
            for j in loop(2):
                tile = nl.ndarray((64, 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
                address += 60_000
                tile[...] = nl.load(x[i, j * 64 : j * 64 + 64])
                nl.store(out[i, j * 64 : j * 64 + 64], tile)
        return out

    np.testing.assert_array_equal(kernel(X), X)
    buffers = kernel.specialize((X,), {}).program.trace.buffers
    assert {b.placed[0].address for b in buffers if b.placed} == {64}


def test_static_range_unrolls_so_its_addresses_differ():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(4):
            tile = nl.ndarray((128, 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=i * 512))
            tile[...] = nl.load(x[i])
            nl.store(out[i], tile)
        return out

    np.testing.assert_array_equal(kernel(X), X)
    buffers = kernel.specialize((X,), {}).program.trace.buffers
    assert [b.placed[0].address for b in buffers if b.placed] == [0, 512, 1024, 1536]


def test_tiles_past_the_end_of_sbuf_in_simulate_kernel():
    """AWS's attention kernels share an allocator, which the second of them finds used up."""
    far = ncc.sbuf.mod_alloc(base_addr=170_000, num_free_tiles=(4,))
    kernel = nki.jit(copy_kernel(ncc.sbuf.alloc(lambda *a: (0, 10_240 + far.place(*a)[1]))))
    with pytest.raises(PlacementError, match=r"bytes 0\.\.180223"):
        kernel(X)
    with pytest.warns(NkiWarning, match="bytes 0..180223"):
        got = nki.simulate_kernel(kernel, X)
    np.testing.assert_array_equal(got, X)


def test_placed_tiles_of_a_round_that_its_mask_leaves_out():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(64)[:, None], nl.arange(x.shape[1])[None, :]
        for k in nl.affine_range(3):
            inside = 64 * k + i < x.shape[0]
            a = nl.ndarray((64, 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
            b = nl.ndarray((64, 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=256))
            a[...] = nl.load(x[64 * k + i, j], mask=inside)
            b[...] = nl.negative(a)
            nl.store(out[64 * k + i, j], b, mask=inside)
        return out

    np.testing.assert_array_equal(kernel(X[0]), -X[0])

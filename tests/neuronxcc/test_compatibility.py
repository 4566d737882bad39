"""What `mode="simulation"` does as the SDK's simulator does, and no other way of running does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nkisim.errors import (
    KernelError,
    NkiWarning,
    OutputError,
    ParameterError,
    UninitializedReadError,
)
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl

MODES = ["auto", "baremetal", "jax", "torchxla", "trace"]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def doubled(x):
    tile = nl.load(x)
    return tile * 2, "two", tile


def test_returned_tiles_are_copied_out_with_a_warning():
    x = numbers(5, 7)
    with pytest.warns(NkiWarning, match="copies them out") as caught:
        twice, name, same = nki.jit(doubled, mode="simulation")(x)
    np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(same, x)
    assert name == "two"
    assert caught[0].filename == __file__


def test_a_part_of_a_psum_tile_is_copied_out():
    @nki.jit(mode="simulation")
    def kernel(a, b):
        return nl.matmul(nl.load(a), nl.load(b), transpose_x=True)[1:4, 2:9:3]

    a, b = numbers(6, 5), numbers(6, 9, seed=1)
    with pytest.warns(NkiWarning, match="PSUM"):
        got = kernel(a, b)
    np.testing.assert_allclose(got, (a.T @ b)[1:4, 2:9:3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_other_modes_refuse_a_returned_tile(mode):
    with pytest.raises(OutputError, match="outputs live in HBM"):
        nki.jit(doubled, mode=mode)(numbers(5, 7))
    with pytest.raises(OutputError, match="outputs live in HBM"):
        nki.simulate_kernel(doubled, numbers(5, 7))


def test_instances_of_a_grid_that_return_a_tile_each_race():
    with pytest.warns(NkiWarning), pytest.raises(KernelError, match="instance"):
        nki.jit(doubled, mode="simulation")[2](numbers(5, 7))


def exponent(x, dtype):
    """exp in a tile of `dtype`, stored in fp32."""
    out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    tile = nisa.activation(op=nl.exp, data=nl.load(x), dtype=dtype)
    nl.store(out, nl.copy(tile))
    return out


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float8_e4m3, nl.float8_e5m2])
def test_narrow_tiles_keep_fp32_precision_in_simulation_mode_only(dtype):
    x = numbers(5, 7)
    exact = np.exp(x)
    rounded = exact.astype(dtype).astype(np.float32)
    assert not np.allclose(rounded, exact)
    np.testing.assert_array_equal(nki.simulate_kernel(exponent, x, dtype), rounded)
    for mode in MODES:
        np.testing.assert_array_equal(nki.jit(exponent, mode=mode)(x, dtype), rounded)
    got = nki.jit(exponent, mode="simulation")(x, dtype)
    np.testing.assert_allclose(got, exact, rtol=1e-6)


def test_fp16_which_numpy_has_rounds_in_every_mode():
    x = numbers(5, 7)
    rounded = np.exp(x).astype(np.float16).astype(np.float32)
    got = nki.jit(exponent, mode="simulation")(x, nl.float16)
    np.testing.assert_array_equal(got, rounded)


def test_hbm_rounds_in_simulation_mode_whatever_the_plan_removes():
    @nki.jit(mode="simulation")
    def kernel(x):
        scratch = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.private_hbm)
        narrow = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        tile = nl.multiply(nl.load(x), 3.0, dtype=nl.bfloat16)
        nl.store(scratch, tile)
        nl.store(narrow, tile)
        nl.store(out, nl.add(nl.load(scratch), 0.0, dtype=nl.float32))
        return narrow, out

    x = numbers(5, 7)
    narrow, out = kernel(x)
    rounded = (x * np.float32(3)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(narrow, rounded)
    np.testing.assert_array_equal(out, rounded.astype(np.float32))


def test_a_tile_seen_as_bits_rounds_in_simulation_mode():
    @nki.jit(mode="simulation")
    def kernel(x):
        out = nl.ndarray(x.shape, nl.uint16, buffer=nl.shared_hbm)
        tile = nl.multiply(nl.load(x), 3.0, dtype=nl.bfloat16)
        nl.store(out, tile.view(nl.uint16))
        return out

    x = numbers(5, 7)
    bits = (x * np.float32(3)).astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(kernel(x), bits)


def squared_in_part(x, rows):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.arange(x.shape[0])[:, None]
    nl.store(out, nl.square(nl.load(x), mask=i < rows))
    return out


def test_a_tile_that_is_filled_in_part_is_stored_in_simulation_mode_only():
    x = numbers(5, 7)
    with pytest.warns(NkiWarning, match="14 of 35 elements of tile .* that nothing wrote"):
        got = nki.jit(squared_in_part, mode="simulation")(x, 3)
    np.testing.assert_array_equal(got[:3], np.square(x[:3]))
    for mode in MODES:
        with pytest.raises(UninitializedReadError, match="14 of 35"):
            nki.jit(squared_in_part, mode=mode)(x, 3)


def test_a_tile_that_nothing_fills_is_stored_in_no_mode():
    with pytest.raises(UninitializedReadError, match="35 of 35"):
        nki.jit(squared_in_part, mode="simulation")(numbers(5, 7), 0)


@pytest.mark.parametrize("api", ["isa", "language"])
def test_dropout_keeps_everything_in_simulation_mode_only(api):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nisa.dropout(tile, 0.5) if api == "isa" else nl.dropout(tile, 0.5))
        return out

    x = numbers(5, 70) + 10
    with pytest.warns(NkiWarning, match="dropout keeps every element"):
        got = nki.jit(kernel, mode="simulation")(x)
    np.testing.assert_array_equal(got, x)
    for mode in MODES:
        assert 0.2 < (nki.jit(kernel, mode=mode)(x) == 0).mean() < 0.8


def product_on_a_quarter(x, y):
    out = nl.ndarray((x.shape[1], y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    part = nisa.nc_matmul(nl.load(x), nl.load(y), tile_position=(0, 0), tile_size=(32, 128))
    nl.store(out, part)
    return out


def test_narrow_parts_of_the_pe_array_are_used_with_a_warning():
    x, y = numbers(32, 20), numbers(32, 50, seed=1)
    with pytest.warns(NkiWarning, match="neither size is 32"):
        product = nki.jit(product_on_a_quarter, mode="simulation")(x, y)
    np.testing.assert_allclose(product, x.T @ y, rtol=1e-4, atol=1e-5)
    with pytest.raises(ParameterError, match="neither size is 32"):
        nki.jit(product_on_a_quarter)(x, y)

"""Arguments that share memory are distinct on a device: reads see what was there before."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki as old
import neuronxcc.nki.language as ol
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc.nki.typing import mutable_tensor

from nkisim import KernelError
from nkisim.frontends.nki.dtypes import PACKED, packed_numpy


@nki.jit
def in_nki(a, b):
    c = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ta, tb = (nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=ta, src=a)
    nisa.tensor_scalar(dst=tb, data=ta, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=b, src=tb)
    nisa.dma_copy(dst=c, src=ta)
    return c, b


@old.jit
def in_neuronxcc(a, b: mutable_tensor):
    c = ol.ndarray(a.shape, dtype=a.dtype, buffer=ol.shared_hbm)
    ta = ol.load(a)
    ol.store(b, ol.multiply(ta, 2.0))
    ol.store(c, ta)
    return c, b


@nki.jit
def unwritten_too(a, b):
    """Returns an argument that it does not write."""
    c, b = in_nki(a, b)
    return c, a, b


@old.jit
def both_written(a: mutable_tensor, b: mutable_tensor):
    ta, tb = ol.load(a), ol.load(b)
    ol.store(a, ta + 1.0)
    ol.store(b, tb * 2.0)
    return a, b


def _numpy(array):
    return array


def _torch(array):
    return pytest.importorskip("torch").from_numpy(array)


# Pairs of views of one memory of 18 x 4 elements; the second is written.
PAIRS = {
    "same": lambda y: (y[:8], y[:8]),
    "equal views": lambda y: (y[:8], y[0:8]),
    "one row on": lambda y: (y[:8], y[1:9]),
    "one row back": lambda y: (y[1:9], y[:8]),
    "apart": lambda y: (y[:8], y[9:17]),
    "every other row": lambda y: (y[0:16:2], y[1:17:2]),
    "rows that meet": lambda y: (y[0:16:2], y[:8]),
    "written rows that meet": lambda y: (y[:8], y[0:16:2]),
    "columns": lambda y: (y[:8, 0:2], y[:8, 1:3]),
}


@pytest.mark.parametrize("framework", [_numpy, _torch])
@pytest.mark.parametrize("kernel", [in_nki, in_neuronxcc], ids=lambda k: k.__name__)
@pytest.mark.parametrize("pair", PAIRS)
def test_inputs_are_read_as_they_were(pair, kernel, framework):
    memory = np.arange(72, dtype=np.float32).reshape(18, 4)
    expected = memory.copy()
    a, b = PAIRS[pair](expected)
    before = a.copy()
    b[...] = 2 * before
    x, y = PAIRS[pair](framework(memory))
    for _ in range(2):
        c, returned = kernel(x, y)
        np.testing.assert_array_equal(np.asarray(c), before)
        np.testing.assert_array_equal(np.asarray(returned), b)
        np.testing.assert_array_equal(memory, expected)
        assert returned is y
        before = a.copy()
        b[...] = 2 * before


def test_views_of_one_tensor_in_both_frameworks():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(32.0).reshape(8, 4)
    before = tensor.numpy().copy()
    c, _ = in_nki(tensor.numpy()[:4], tensor[1:5].numpy())
    np.testing.assert_array_equal(c, before[:4])
    np.testing.assert_array_equal(tensor[1:5].numpy(), 2 * before[:4])


@pytest.mark.parametrize("framework", [_numpy, _torch])
def test_an_argument_that_is_only_returned_is_what_it_was(framework):
    x = framework(np.arange(8, dtype=np.float32).reshape(2, 4))
    before = np.asarray(x).copy()
    c, a, b = unwritten_too(x, x)
    assert b is x
    np.testing.assert_array_equal(np.asarray(c), before)
    np.testing.assert_array_equal(np.asarray(a), before)
    np.testing.assert_array_equal(np.asarray(b), 2 * before)


@pytest.mark.parametrize("framework", [_numpy, _torch])
@pytest.mark.parametrize("step", [1, 2])
def test_of_two_written_arguments_each_result_is_its_own_and_memory_has_the_later(framework, step):
    memory = framework(np.arange(32, dtype=np.float32).reshape(8, 4))
    x = memory[::step][:4]
    before = np.asarray(x).copy()
    a, b = both_written(x, x)
    np.testing.assert_array_equal(np.asarray(a), before + 1)
    np.testing.assert_array_equal(np.asarray(b), 2 * before)
    np.testing.assert_array_equal(np.asarray(x), 2 * before)


def test_jax_gives_the_same():
    jax = pytest.importorskip("jax")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for call in (unwritten_too, jax.jit(unwritten_too)):
        found = call(*[jax.numpy.asarray(x)] * 2)
        for array, wanted in zip(found, (x, x, 2 * x), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_torch_xla_gives_the_same():
    torch_xla = pytest.importorskip("torch_xla")
    torch = pytest.importorskip("torch")
    values = torch.arange(8.0).reshape(2, 4)
    x = values.to(torch_xla.device())
    a, b = both_written(x, x)
    torch.testing.assert_close(a.cpu(), values + 1)
    torch.testing.assert_close(b.cpu(), 2 * values)
    torch.testing.assert_close(x.cpu(), 2 * values)


@pytest.mark.parametrize("framework", [_numpy, _torch])
def test_a_written_argument_that_repeats_elements_is_refused(framework):
    torch = pytest.importorskip("torch")
    row = np.ones((1, 4), np.float32)
    wide = np.lib.stride_tricks.as_strided(row, (8, 4), (0, 4))
    b = wide if framework is _numpy else torch.from_numpy(row).expand(8, 4)
    with pytest.raises(KernelError, match="argument 'b' repeats elements"):
        in_nki(framework(np.ones((8, 4), np.float32)), b)


@nki.jit
def copied(x, y):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y


@pytest.mark.parametrize("step", [1, 2])
def test_packed_elements_are_written_in_place_in_any_layout(step, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    for name in sorted(PACKED):  # two of which are stored as the same integers
        kind = packed_numpy(name)
        codes = np.arange(8 * 16 * kind.itemsize, dtype=np.uint8).view(kind).reshape(8, 16)
        x, before = codes[:, ::step], codes.tobytes()
        for memory in (np.zeros((8, 16), kind)[:, ::step], np.zeros((16, 8), kind).T[:, ::step]):
            y = copied(x, memory)
            assert y.dtype == kind
            assert y.tobytes() == memory.tobytes() == x.tobytes()
            assert np.shares_memory(y, memory)
        assert codes.tobytes() == before


def test_scales_are_no_integers(monkeypatch):
    """Arrays of ml_dtypes.float8_e8m0fnu are stored as those of uint8; the kernel sees the type."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    seen = []

    @nki.jit
    def kernel(x, y):
        seen.append(str(x.dtype))
        return copied(x, y)

    for kind in (np.uint8, ml_dtypes.float8_e8m0fnu):
        x, y = np.arange(8, dtype=np.uint8).view(kind).reshape(2, 4), np.zeros((4, 2), kind).T
        kernel(x, y)
        np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))
    assert len(seen) == 2
    assert seen[0] != seen[1]

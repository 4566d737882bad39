"""An output inside the data that an instruction reads: all is read first, and what a device may do
otherwise is told."""

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import NkiWarning

X = np.random.default_rng(3).integers(1, 9, (32, 48)).astype(np.float32)


def run(body):
    """What `body(tile)` leaves in the tile, and whether it is told of."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        body(tile)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nki.simulate(kernel)(X)
    return found, any("reads elements for other results" in str(w.message) for w in caught)


def written(at, values):
    want = X.copy()
    want[at] = values
    return want


C = np.s_[:, 3:19]  # where results go; what is read is X[:, 0:16]
SHIFTED = {
    "tensor_tensor": (
        lambda t: nisa.tensor_tensor(t[C], t[:, 0:16], t[:, 8:24], nl.add),
        X[:, 0:16] + X[:, 8:24],
    ),
    "tensor_scalar": (
        lambda t: nisa.tensor_scalar(t[C], t[:, 0:16], nl.add, 1.0, op1=nl.multiply, operand1=2.0),
        (X[:, 0:16] + 1) * 2,
    ),
    "scalar_operand": (
        lambda t: nisa.tensor_scalar(t[:, 0:16], t[:, 0:16], nl.subtract, t[:, 5:6]),
        X[:, 0:16] - X[:, 5:6],
    ),
    "activation": (lambda t: nisa.activation(t[C], nl.square, t[:, 0:16]), X[:, 0:16] ** 2),
    "tensor_copy": (lambda t: nisa.tensor_copy(t[C], t[:, 0:16]), X[:, 0:16]),
    "backwards": (lambda t: nisa.tensor_copy(t[:, 0:16], t[:, 3:19]), X[:, 3:19]),
    "scan": (
        lambda t: nisa.tensor_tensor_scan(
            t[C], t[:, 0:16], t[:, 0:16], 0.0, nl.multiply, nl.maximum
        ),
        None,
    ),
    "windows": (
        lambda t: nisa.tensor_reduce(t[:, 2:14], nl.add, t.ap([[48, 32], [1, 12], [1, 4]]), axis=2),
        np.lib.stride_tricks.sliding_window_view(X, 4, axis=1)[:, :12].sum(2),
    ),
    "max8": (lambda t: nisa.max8(t[:, 3:11], t[:, 0:16]), -np.sort(-X[:, 0:16], axis=1)[:, :8]),
    "transpose": (
        lambda t: nisa.nc_transpose(t[:, 8:40], t[:, 0:32], engine=nisa.engine.vector),
        X[:, 0:32].T,
    ),
    "dma": (lambda t: nisa.dma_copy(t[C], t[:, 0:16]), X[:, 0:16]),
}
PLACES = {"scalar_operand": np.s_[:, 0:16], "backwards": np.s_[:, 0:16], "windows": np.s_[:, 2:14]}
PLACES |= {"max8": np.s_[:, 3:11], "transpose": np.s_[:, 8:40]}


@pytest.mark.parametrize("name", SHIFTED)
def test_all_is_read_first_and_it_is_told(name):
    body, want = SHIFTED[name]
    found, told = run(body)
    assert told
    if want is not None:
        np.testing.assert_array_equal(found, written(PLACES.get(name, C), want))


@pytest.mark.parametrize("count", [2, 4, 16, 40])
@pytest.mark.parametrize("op", ["add", "maximum", "minimum"])
def test_a_reduction_onto_its_own_input_needs_no_order(op, count):
    """One number a partition comes of all that is read, whatever is read first."""
    fn = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[op]
    for at in (0, count // 2, count - 1):
        found, told = run(
            lambda t, at=at: nisa.tensor_reduce(
                t[:, at : at + 1], getattr(nl, op), t[:, 0:count], axis=1
            )
        )
        assert not told
        want = fn.reduce(X[:, 0:count], axis=1, keepdims=True)
        np.testing.assert_array_equal(found, written(np.s_[:, at : at + 1], want))


APART = {
    "in place": lambda t: nisa.tensor_tensor(t, t, t, nl.add),
    "a part in place": lambda t: nisa.activation(t[:, 4:9], nl.square, t[:, 4:9]),
    "odd and even": lambda t: nisa.tensor_copy(t[:, 0:48:2], t[:, 1:48:2]),
    "neighbours": lambda t: nisa.tensor_tensor(t[:, 0:8], t[:, 8:16], t[:, 16:24], nl.add),
    "a sum behind": lambda t: nisa.tensor_scalar_reduce(
        t[:, 0:8], t[:, 0:8], nl.add, 1.0, nl.add, t[:, 8:9]
    ),
}


@pytest.mark.parametrize("name", APART)
def test_in_place_and_beside_each_other_nothing_is_told(name):
    _, told = run(APART[name])
    assert not told


def test_the_older_dialect():
    import neuronxcc.nki as old
    import neuronxcc.nki.isa as old_isa
    import neuronxcc.nki.language as old_nl

    @old.jit
    def kernel(x):
        out = old_nl.ndarray(x.shape, dtype=x.dtype, buffer=old_nl.shared_hbm)
        tile = old_nl.load(x)
        tile[:, 3:19] = old_isa.tensor_copy(tile[:, 0:16])  # by way of a tile of its own
        old_isa.activation_reduce(
            old_nl.square, tile[:, 0:16], reduce_op=np.add, reduce_res=tile[:, 7:8]
        )
        old_nl.store(out, tile)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("error", NkiWarning)
        found = kernel(X)
    want = written(C, X[:, 0:16])
    want[:, 7] = (want[:, 0:16] ** 2).sum(1)
    np.testing.assert_array_equal(found, want)


def products(kernel):
    """A kernel of products of (128, 64) tiles by (128, 128) ones, and what is told of groups."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((3, 128, 64), np.float32),
        rng.standard_normal((3, 128, 128), np.float32),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nki.simulate(kernel)(a, b)
    want = sum(x.T @ y for x, y in zip(a, b, strict=True))
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3)
    told = [str(w.message) for w in caught if "starts an accumulation group" in str(w.message)]
    return told


def stored(total):
    out = nl.ndarray((64, 128), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 128), nl.float32)
    nisa.tensor_copy(tile, total)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("accumulate", [None, "said"])
@pytest.mark.parametrize("parts", [2, 4])
def test_groups_that_are_open_at_once_in_a_bank_are_told(accumulate, parts):
    width = 128 // parts

    def kernel(x, y):
        total = nl.ndarray((64, 128), nl.float32, buffer=nl.psum)
        for k in range(3):
            a, b = nl.load(x[k]), nl.load(y[k])
            for c in range(parts):
                at = slice(c * width, (c + 1) * width)
                adds = None if accumulate is None else k > 0
                nisa.nc_matmul(total[:, at], a, b[:, at], accumulate=adds)
        return stored(total)

    (told,) = products(kernel)
    assert "tile for each group" in told


def test_groups_after_each_other_or_in_tiles_of_their_own_are_not():
    def one_after_the_other(x, y):
        total = nl.ndarray((64, 128), nl.float32, buffer=nl.psum)
        for c in range(2):
            at = slice(c * 64, (c + 1) * 64)
            for k in range(3):
                nisa.nc_matmul(total[:, at], nl.load(x[k]), nl.load(y[k])[:, at])
        return stored(total)

    def whole(x, y):
        total = nl.ndarray((64, 128), nl.float32, buffer=nl.psum)
        for k in range(3):
            nisa.nc_matmul(total, nl.load(x[k]), nl.load(y[k]))
        return stored(total)

    def in_banks(x, y):
        total = nl.ndarray((64, 2, 512), nl.float32, buffer=nl.psum)
        for k in range(3):
            a, b = nl.load(x[k]), nl.load(y[k])
            for c in range(2):
                nisa.nc_matmul(total[:, c, 0:64], a, b[:, c * 64 : c * 64 + 64])
        tile = nl.ndarray((64, 2, 64), nl.float32)
        nisa.tensor_copy(tile, total[:, :, 0:64])
        out = nl.ndarray((64, 128), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile.reshape((64, 128)))
        return out

    for kernel in (one_after_the_other, whole, in_banks):
        assert not products(kernel)

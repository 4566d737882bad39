"""What a message says to write: the program of each case is refused, and the one that is mended as
the fix line says gives the right result."""

from __future__ import annotations

import functools

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new_nki
import nki.isa as new_isa
import nki.language as new_nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import KernelError

X = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)


def transposed(load):
    def body(a):
        return load(a)

    return body


def scaled(index):
    """Rows scaled by their sums, which come with an axis too many."""
    return lambda a: nl.multiply(nl.load(a), index(nl.sum(nl.load(a), axis=1)[:, None]))


def relu(of):
    return lambda a: of(nl.load(a))


def torch_relu(tile):
    torch = pytest.importorskip("torch")
    return torch.nn.functional.relu(tile)


def masked(mask):
    def body(a):
        tile = nl.zeros((16, 32), nl.float32)
        i, j = nl.mgrid[0:16, 0:32]
        for one in mask(i, j):
            tile[...] = nl.copy(nl.load(a), mask=one)
        return tile

    return body


def strided(index):
    return lambda a: nl.copy(nl.load(a)[nl.arange(16)[:, None], index()[None, :]])


def first_columns(n):
    def body(a):
        return nl.sum(nl.load(a[:, 0:n]), axis=1) if n > 0 else nl.zeros((16, 1), nl.float32)

    return body


# name: what is refused, a part of the fix, what it says to write, and the result.
# fmt: off
CASES = {
    "a transpose in HBM": (transposed(lambda a: nl.load(a.T)), "nl.load_transpose2d(a)",
        transposed(lambda a: nl.load_transpose2d(a)), X.T),
    "a transpose of a tile": (transposed(lambda a: nl.copy(nl.load(a).T)), "nl.transpose(",
        transposed(lambda a: nl.copy(nl.transpose(nl.load(a)))), X.T),
    "an axis too many": (scaled(lambda s: s), "drop axes of size 1, t[:, :, 0]",
        scaled(lambda s: s[:, :, 0]), X * X.sum(1, keepdims=True)),
    "a function of PyTorch": (relu(torch_relu), "nl.relu", relu(nl.relu), np.maximum(X, 0)),
    "a function of NumPy": (relu(np.exp), "nl.exp", relu(nl.exp), np.exp(X)),
    "one condition or another": (masked(lambda i, j: [(i < 4) | (j < 4)]),
        "split the operation in two with a mask each", masked(lambda i, j: [i < 4, j < 4]),
        np.where((np.arange(16) < 4)[:, None] | (np.arange(32) < 4), X, 0)),
    "one condition, but not another": (masked(lambda i, j: [(i < 4) ^ (j < 4)]),
        "split the operation in two with a mask each",
        masked(lambda i, j: [(i < 4) & (j >= 4), (i >= 4) & (j < 4)]),
        np.where((np.arange(16) < 4)[:, None] ^ (np.arange(32) < 4), X, 0)),
    "an index with a step": (strided(lambda: nl.arange(1, 12, 3)), "1 + 3 * nl.arange(4)",
        strided(lambda: 1 + 3 * nl.arange(4)), X[:, 1:12:3]),
    "a mask of mgrid on a column": (
        lambda a: nl.exp(nl.load(a[:, 0:1]), mask=nl.mgrid[0:16, 0:32][0] < 16),
        "nl.arange(16)[:, None]",
        lambda a: nl.exp(nl.load(a[:, 0:1]), mask=nl.arange(16)[:, None] < 16), np.exp(X[:, :1])),
    "a sum of nothing": (lambda a: nl.sum(nl.load(a[:, 0:0]), axis=1), "if x.shape[1] > 0",
        first_columns(0), np.zeros((16, 1))),
    "operands beyond SBUF": (
        lambda a: nl.add(nl.zeros((128, 20_000), nl.float32), nl.zeros((128, 20_000), nl.float32)),
        "use a narrower type",
        lambda a: nl.copy(nl.add(nl.zeros((128, 20_000), nl.bfloat16),
                nl.zeros((128, 20_000), nl.bfloat16))[0:1, 0:2], dtype=nl.float32),
        np.zeros((1, 2))),
    "rows of a matmul's operand": (lambda a: nisa.nc_matmul(nl.load(a[:, 0:16]),
            nl.load(a[:, 0:16]), mask=nl.arange(16)[None, :] < 4),
        "a[i, j][i < rows], b[i, j][j < columns]",
        lambda a: nl.copy(nisa.nc_matmul(nl.load(a[:, 0:16])[nl.mgrid[0:16, 0:16][0],
                    nl.mgrid[0:16, 0:16][1]][nl.mgrid[0:16, 0:16][1] < 4],
                nl.load(a[:, 0:16]))[0:4, :]), X[:, :4].T @ X[:, :16]),
}
# fmt: on


def run(body):
    @nki.jit
    def kernel(a):
        tile = body(a)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return kernel(X)


@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_fix_works(name):
    refused, said, mended, wanted = CASES[name]
    with pytest.raises(KernelError) as caught:
        run(refused)
    assert said in caught.value.fix
    assert caught.value.location.filename == __file__
    np.testing.assert_allclose(run(mended), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jit", [nki.jit, new_nki.jit])
def test_bytes_in_the_other_order(jit):
    with pytest.raises(KernelError) as caught:
        jit(lambda a: a)(X.astype(">f4"))
    assert "a.astype(a.dtype.newbyteorder('='))" in caught.value.fix
    a = X.astype(">f4")
    assert a.astype(a.dtype.newbyteorder("=")).dtype == np.float32


def test_a_shape_where_a_tensor_is_wanted():
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    with pytest.raises(KernelError) as caught:
        nkisim.profile(kernel, (16, 32))
    assert "nkisim.TensorSpec((16, 32), np.float32)" in caught.value.fix
    assert nkisim.profile(kernel, nkisim.TensorSpec((16, 32), np.float32)).latency_us > 0


# -- lines and fixes of what a framework's function says

FRAMEWORKS = {
    "jax.nn.gelu": lambda jax, torch, t: jax.nn.gelu(t),
    "jax.numpy.exp": lambda jax, torch, t: jax.numpy.exp(t),
    "jax.lax.exp": lambda jax, torch, t: jax.lax.exp(t),
    "jax.nn.softmax": lambda jax, torch, t: jax.nn.softmax(t),
    "jax.numpy.asarray": lambda jax, torch, t: jax.numpy.asarray(t),
    "torch.exp": lambda jax, torch, t: torch.exp(t),
    "torch.nn.functional.gelu": lambda jax, torch, t: torch.nn.functional.gelu(t),
    "np.exp": lambda jax, torch, t: np.exp(t),
}


@pytest.mark.parametrize("dialect", [nki, new_nki])
@pytest.mark.parametrize("function", FRAMEWORKS)
def test_a_framework_s_function_is_told_at_the_kernel_s_line(function, dialect):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    language = nl if dialect is nki else new_nl

    def kernel(x):
        FRAMEWORKS[function](jax, torch, language.load(x))

    with pytest.raises(KernelError) as caught:
        dialect.jit(kernel)(X)
    assert caught.value.location.filename == __file__
    name = function.rpartition(".")[2]
    if hasattr(language, name):
        assert f"nl.{name}" in caught.value.fix


@pytest.mark.parametrize("dialect", [nki, new_nki])
def test_a_number_under_jit_is_told_to_be_static(dialect):
    jax = pytest.importorskip("jax")

    def in_neuronxcc(x, s):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * s)
        return out

    def in_nki(x, s):
        out = new_nl.ndarray(x.shape, x.dtype, buffer=new_nl.shared_hbm)
        t = new_nl.load(x)
        new_isa.tensor_scalar(t, t, new_nl.multiply, s)
        new_isa.dma_copy(out, t)
        return out

    kernel = dialect.jit(in_neuronxcc if dialect is nki else in_nki)
    with pytest.raises(KernelError) as caught:
        jax.jit(kernel)(X, 2.0)
    assert "functools.partial(kernel, s=2.0) or static_argnames" in caught.value.fix
    np.testing.assert_array_equal(jax.jit(functools.partial(kernel, s=2.0))(X), 2 * X)
    np.testing.assert_array_equal(jax.jit(kernel, static_argnames="s")(X, s=2.0), 2 * X)

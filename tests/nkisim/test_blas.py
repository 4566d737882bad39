"""How many threads NumPy's BLAS has while programs run."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.numerics import blas, program

rng = np.random.default_rng(0)


@pytest.fixture
def three_threads():
    """The function that tells how many threads there are, which are three."""

    def threads():
        (number,) = {library["num_threads"] for library in blas.controller().info()}
        return number

    if not blas.controller().info():
        pytest.skip("this NumPy has a BLAS that threadpoolctl does not know")
    with blas.controller().limit(limits=3):
        yield threads


def test_one_thread_inside_and_as_before_outside(three_threads):
    with blas.OneThread():
        assert three_threads() == 1
        with blas.OneThread():
            assert three_threads() == 1
        assert three_threads() == 1
    assert three_threads() == 3


def test_an_error_gives_the_threads_back(three_threads):
    with contextlib.suppress(KeyError), blas.OneThread():
        raise KeyError
    assert three_threads() == 3


def test_a_program_that_ends_leaves_one_thread_to_those_that_run(three_threads):
    inside, leave, after = threading.Event(), threading.Event(), []

    def other():
        with blas.OneThread():
            inside.set()
            leave.wait()
            after.append(three_threads())

    thread = threading.Thread(target=other)
    with blas.OneThread():
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    assert after == [1]
    assert three_threads() == 3


@pytest.mark.parametrize(("k", "m", "n"), [(700, 333, 800), (700, 2000, 65), (5000, 64, 130)])
def test_pieces_of_a_product_do_not_depend_on_threads(monkeypatch, k, m, n):
    monkeypatch.setattr(blas, "PIECE", 1 << 22)
    a, b = rng.standard_normal((k, m), np.float32), rng.standard_normal((k, n), np.float32)
    found = []
    for threads in (1, 2, 5):
        pool = ThreadPoolExecutor(threads) if threads > 1 else None
        monkeypatch.setattr(blas, "_pool", lambda pool=pool: pool)
        found.append(blas.multiply(a, b))
    np.testing.assert_allclose(found[0], a.T.astype(float) @ b, rtol=1e-3, atol=1e-3)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@nki.jit
def square(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.multiply(t, t))
    return out


@nki.jit
def gram(x):
    out = nl.ndarray((x.shape[1],) * 2, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.copy(nisa.nc_matmul(t, t)))
    return out


def test_programs_that_multiply_matrices_use_it(monkeypatch):
    entered = []

    class Noted(blas.OneThread):
        def __enter__(self):
            entered.append(True)
            super().__enter__()

    monkeypatch.setattr(program, "OneThread", Noted)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(square(x), x * x)
    assert not entered
    np.testing.assert_array_equal(gram(x), x.T @ x)
    assert len(entered) == 1


@nki.jit
def product(a, b):
    """a.T @ b of any number of rows."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((a.shape[1], b.shape[1]), nl.float32, buffer=nl.psum)
    for t in nl.affine_range(a.shape[0] // 100):
        rows = nl.ds(t * 100, 100)
        total += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :]))
    nl.store(out, total)
    return out


# Each has other bits in NumPy: a matrix times a vector with three threads, a product of an array
# with itself in place of a copy.
SHAPES = [(3000, 1, 256), (500, 16, 16), (1000, 128, 384)]


@pytest.mark.parametrize(("k", "m", "n"), SHAPES)
def test_the_same_bits_with_any_number_of_threads(k, m, n):
    a, b = rng.standard_normal((k, m), np.float32), rng.standard_normal((k, n), np.float32)
    want = product(a, b).tobytes()
    for threads in (1, 2, 3, 5):
        with blas.controller().limit(limits=threads):
            assert product(a, b).tobytes() == want
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: product(a, b).tobytes(), range(24)):
            assert found == want


def test_an_array_given_twice_has_the_bits_of_two_equal_arrays():
    x = rng.standard_normal((500, 16), np.float32)
    assert product(x, x).tobytes() == product(x, x.copy()).tobytes()


@pytest.mark.parametrize(("k", "m", "n"), SHAPES)
def test_the_same_bits_in_every_framework_on_every_device(k, m, n):
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    from jax.sharding import Mesh, PartitionSpec

    devices = jax.devices()
    shards = [
        [rng.standard_normal((k, c), np.float32) for c in (m, n)] for _ in range(len(devices))
    ]
    a, b = (np.concatenate(x) for x in zip(*shards, strict=True))
    over = PartitionSpec("d")
    run = jax.jit(
        jax.shard_map(
            lambda a, b: product(a, b)[None],
            mesh=Mesh(devices, ("d",)),
            in_specs=(over, over),
            out_specs=over,
            check_vma=False,
        )
    )
    want = [product(*shard) for shard in shards]
    for _ in range(3):
        for found, wanted in zip(np.asarray(run(a, b)), want, strict=True):
            assert found.tobytes() == wanted.tobytes()
    for shard, wanted in zip(shards[:2], want[:2], strict=True):
        assert product(*map(torch.tensor, shard)).numpy().tobytes() == wanted.tobytes()

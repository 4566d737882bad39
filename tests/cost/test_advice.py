"""Who does what a finding advises gains what it promises; and no finding advises what does not
help. Each kernel is written as it is and as it is advised."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.report import whatif

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")

FACTOR = 1.15  # a gain is within this of what the change gives, either way
P = 128
BF16 = np.dtype(nl.bfloat16)


def tiles_of(body, dtype=None):
    """A kernel that stores `body(tile, advised)` for each 128 rows of x."""

    @nki.jit
    def kernel(x, advised):
        out = nl.ndarray(x.shape, dtype or x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // P):
            rows = nl.ds(i * P, P)
            nl.store(out[rows], body(nl.load(x[rows]), advised))
        return out

    return kernel


def twice_halved(tile, advised):
    for k in range(8):
        if advised:
            tile = nisa.tensor_scalar(tile, np.add, k + 2.0, op1=np.multiply, operand1=0.5)
        else:
            tile = nl.multiply(nl.add(tile, k + 2.0), 0.5)
    return tile


def over_squares(square):
    """Tiles times the sums of their squares, which `square` makes."""

    def body(tile, advised):
        tile = nl.maximum(nl.maximum(tile, 0.1), 0.2)
        total = nl.ndarray((P, 1), nl.float32)
        if advised:
            nisa.activation_reduce(np.square, tile, reduce_op=np.add, reduce_res=total)
        else:
            total = nl.sum(square(tile), axis=1, keepdims=True)
        return nl.multiply(tile, total, dtype=tile.dtype)

    return body


def square_on_scalar(tile):
    return nisa.activation(np.square, tile)


def shifted_exp(tile, advised):
    top = nisa.tensor_reduce(np.max, tile, axis=(1,), negate=advised, keepdims=True)
    for _ in range(4):
        if advised:
            tile = nisa.activation(nl.exp, tile, bias=top)
        else:
            tile = nl.exp(nl.subtract(tile, top))
    return tile


def exp_in(tile, advised):
    return nl.exp(tile, dtype=nl.bfloat16 if advised else nl.float32)


@nki.jit
def loaded_twice(x, advised):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // P):
        rows = nl.ds(i * P, P)
        tile = nl.load(x[rows])
        top = nl.max(tile, axis=1, keepdims=True)
        again = tile if advised else nl.load(x[rows])
        nl.store(out[rows], nl.subtract(again, top))
    return out


@nki.jit
def product(x, y, advised):
    """x transposed times y: tiles of x are loaded for each one of y."""
    k, n = x.shape
    parts = k // P
    out = nl.ndarray((n, n), x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(n // P):
        left = nl.ndarray((parts, nl.par_dim(P), P), x.dtype)
        if advised:
            for i in nl.affine_range(parts):
                left[i] = nl.load(x[nl.ds(i * P, P), nl.ds(m * P, P)])
        for j in nl.affine_range(n // 512):
            sums = nl.zeros((P, 512), nl.float32, buffer=nl.psum)
            for i in nl.affine_range(parts):
                right = nl.load(y[nl.ds(i * P, P), nl.ds(j * 512, 512)])
                if advised:
                    sums += nisa.nc_matmul(left[i], right)
                else:
                    sums += nisa.nc_matmul(nl.load(x[nl.ds(i * P, P), nl.ds(m * P, P)]), right)
            nl.store(out[nl.ds(m * P, P), nl.ds(j * 512, 512)], nl.copy(sums, dtype=x.dtype))
    return out


@nki.jit
def products_of_weights(weights, advised):
    n = weights.shape[0]
    out = nl.ndarray(weights.shape, weights.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((P, P), weights.dtype)
    right = nl.load(weights[0])
    for i in nl.sequential_range(n):
        if advised:
            tile = nl.ndarray((P, P), weights.dtype)
        tile[...] = nl.load(weights[i])
        nl.store(out[i], nl.copy(nisa.nc_matmul(tile, right), dtype=weights.dtype))
    return out


@nki.jit
def sums_in_one_tile(x, advised):
    parts = x.shape[0] // P
    out = nl.ndarray((x.shape[1], x.shape[1]), x.dtype, buffer=nl.shared_hbm)
    every = [nl.load(x[i * P : (i + 1) * P]) for i in range(parts)]
    sums = nl.ndarray((P, 512), nl.float32, buffer=nl.psum)
    for m in nl.sequential_range(x.shape[1] // P):
        for n in nl.sequential_range(x.shape[1] // 512):
            if advised:
                sums = nl.ndarray((P, 512), nl.float32, buffer=nl.psum)
            sums[...] = 0
            for tile in every:
                sums[...] += nisa.nc_matmul(tile[:, nl.ds(m * P, P)], tile[:, nl.ds(n * 512, 512)])
            done = nl.copy(sums, dtype=x.dtype)
            nl.store(out[nl.ds(m * P, P), nl.ds(n * 512, 512)], done)
    return out


@nki.jit
def sums_of_products(x, y, advised):
    out = nl.ndarray((x.shape[1], y.shape[1]), x.dtype, buffer=nl.shared_hbm)
    parts = range(x.shape[0] // P)
    left, right = ([nl.load(z[i * P : (i + 1) * P]) for i in parts] for z in (x, y))
    for m in nl.affine_range(x.shape[1] // P):
        for n in nl.affine_range(y.shape[1] // 512):
            buffer = nl.psum if advised else nl.sbuf
            sums = nl.zeros((P, 512), nl.float32, buffer=buffer)
            for a, b in zip(left, right, strict=True):
                sums[...] += nisa.nc_matmul(a[:, nl.ds(m * P, P)], b[:, nl.ds(n * 512, 512)])
            done = nl.copy(sums, dtype=x.dtype)
            nl.store(out[nl.ds(m * P, P), nl.ds(n * 512, 512)], done)
    return out


SQUARE = spec(1024, 1024, dtype=BF16)
OWN = "what they overwrite has been read"
ADVICE = {
    "two operators": ("nisa.tensor_scalar does", tiles_of(twice_halved), spec(2048, 2048)),
    "squares": (
        "squares and sums in one",
        tiles_of(over_squares(nl.square)),
        spec(4096, 2048, dtype=BF16),
    ),
    "squares of Scalar": (
        "nisa.activation_reduce sums",
        tiles_of(over_squares(square_on_scalar)),
        spec(4096, 2048, dtype=BF16),
    ),
    "minus the largest": ("adds its bias", tiles_of(shifted_exp), spec(4096, 4096, dtype=BF16)),
    "stores": ("than HBM gets", tiles_of(exp_in, nl.bfloat16), spec(4096, 4096, dtype=BF16)),
    "loaded twice": ("read data that was loaded before", loaded_twice, spec(4096, 2048)),
    "left tiles": (
        "read data that was loaded before",
        product,
        *2 * (spec(4096, 4096, dtype=BF16),),
    ),
    "a tile for all": (OWN, products_of_weights, spec(128, P, P, dtype=BF16)),
    "sums in SBUF": ("are added up in SBUF", sums_of_products, SQUARE, SQUARE),
    "sums for all": (OWN, sums_in_one_tile, spec(512, 2048, dtype=BF16)),
}


@pytest.mark.parametrize("case", ADVICE)
@pytest.mark.parametrize("machine", [GEN2, GEN3], ids=["v2", "v3"])
def test_the_gain_is_what_doing_it_gives(case, machine):
    text, kernel, *args = ADVICE[case]
    kernel = kernel.on(machine)
    was, now = (nkisim.profile(kernel, *args, advised) for advised in (False, True))
    promised = [f.gain_us for f in was.findings if text in f.text]
    gained = was.latency_us - now.latency_us
    if gained < 0.02 * was.latency_us:
        assert not promised or max(promised) < 0.05 * was.latency_us
    else:
        assert gained / FACTOR <= max(promised) <= gained * FACTOR
    assert not [f for f in now.findings if text in f.text and f.gain_us > 0.1 * now.latency_us]


def test_what_is_waited_for_is_said_also_when_a_queue_is_busy_most_of_the_time():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.exp(nl.multiply(nl.load(x), 2.0)))
        return out

    t = nkisim.profile(kernel, spec(P, 16384))
    assert 0.6 < t.bound.utilisation < 0.8
    (first, *_) = t.findings
    assert "µs of the body are waits for the results of load" in first.text
    (smaller,) = said(t, "everything else waits for one load: in smaller tiles")
    assert smaller.gain_us > 0.1 * t.latency_us


# -- what does not help, or is not so, is not said


def said(t, text):
    return [f for f in t.findings if text in f.text]


@pytest.mark.parametrize("columns", [512, 77])
def test_no_larger_transfers_are_advised_where_each_moves_a_whole_tensor(columns):
    @nki.jit
    def kernel(a, b, parts):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(parts):
            part = nl.ds(i * (P // parts), P // parts)
            nl.store(out[part], nl.add(nl.load(a[part]), nl.load(b[part])))
        return out

    x = spec(P, columns)
    whole, divided = (nkisim.profile(kernel.on(GEN3), x, x, parts) for parts in (1, 8))
    assert not said(whole, "move more in each")
    assert said(divided, "move more in each")


@pytest.mark.parametrize("machine", [GEN2, GEN3], ids=["v2", "v3"])
def test_reducing_on_the_side_is_not_advised_where_it_moves_work_to_the_busy_engine(machine):
    """Products with a number run on Scalar, beside the sums; tensor_scalar_reduce does both on
    Vector, and no quicker."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[0], 4), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // P):
            rows = nl.ds(i * P, P)
            tile, sums = nl.load(x[rows]), nl.ndarray((P, 4), nl.float32)
            for j in range(4):
                total = nl.sum(nl.multiply(tile, j + 2.0), axis=1, keepdims=True)
                sums[:, j : j + 1] = total
            nl.store(out[rows], sums)
        return out

    t = nkisim.profile(kernel.on(machine), spec(2048, 2048))
    assert t.bound.name == "Vector"
    assert not said(t, "tensor_scalar_reduce")


def test_matmuls_that_wait_for_each_other_are_not_said_to_fit_into_one():
    @nki.jit
    def recurrent(x, weights):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        matrix, every = nl.load(weights), nl.load(x)
        states = nl.ndarray(x.shape, x.dtype)
        state = nl.ndarray((P, 32), x.dtype)
        state[...] = every[:, 0, :]
        for i in nl.sequential_range(x.shape[1]):
            both = nl.add(nisa.nc_matmul(matrix, state), every[:, i, :])
            state[...] = nl.tanh(both)
            states[:, i, :] = nl.copy(state)
        nl.store(out, states)
        return out

    t = nkisim.profile(recurrent, spec(P, 256, 32), spec(P, P))
    assert not said(t, "columns fit into one")


def test_matmuls_of_other_weights_in_the_same_tile_are_not_said_to_fit_into_one():
    @nki.jit
    def refilled(weights, x):
        out = nl.ndarray((weights.shape[0], P, 32), x.dtype, buffer=nl.shared_hbm)
        right, tile = nl.load(x), nl.ndarray((P, P), x.dtype)
        for i in nl.sequential_range(weights.shape[0]):
            tile[...] = nl.load(weights[i])
            nl.store(out[i], nl.copy(nisa.nc_matmul(tile, right), dtype=x.dtype))
        return out

    t = nkisim.profile(refilled, spec(64, P, P), spec(P, 32))
    assert not said(t, "columns fit into one")


def test_sums_that_are_scaled_in_between_are_not_said_to_belong_in_psum():
    """As in attention in blocks; and one product that is added to something else is no sum."""

    @nki.jit
    def kernel(x, scaled):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        total = nl.ndarray(x.shape, nl.float32)
        total[...] = nl.copy(tile)
        for _ in nl.sequential_range(32 if scaled else 1):
            if scaled:
                total[...] = nl.multiply(total, 0.5)
            total[...] += nisa.nc_matmul(tile[:, 0:P], tile)
        nl.store(out, total)
        return out

    for scaled in (True, False):
        assert not said(nkisim.profile(kernel, spec(P, 512), scaled), "added up in SBUF")


def test_runs_are_said_to_be_what_most_of_them_are():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((P, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
        for width, count in ((1, 1), (P, x.shape[1] // P)):
            for j in nl.affine_range(count):
                part = nl.ds(j * width, width)
                nl.store(out[:, part], nl.load(x[:, part]))
        return out

    (found, *_) = said(nkisim.profile(kernel, spec(P, 64 * P)), "contiguous runs")
    assert "runs of 512 bytes" in found.text


def test_pieces_of_one_load_are_not_said_to_be_loaded_again():
    """A load that swaps axes goes through the Tensor Engine in pieces of 128 columns."""

    @nki.jit
    def kernel(x):
        n = x.shape[0] // 512
        out = nl.ndarray((n, P, 512), x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:P, 0:512]
        for i in nl.affine_range(n):
            nl.store(out[i], nl.load(x[i * 512 + f, p]))
        return out

    t = nkisim.profile(kernel, spec(16 * 512, P))
    assert [task.label for task in t._core.work.tasks].count("load") == 64
    assert not said(t, "loaded before")


def test_results_that_leave_psum_are_said_once():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, sums = nl.load(x), nl.zeros((P, 1), nl.float32)
        parts = [nl.ds(j * 512, 512) for j in range(x.shape[1] // 512)]
        products = [nisa.nc_matmul(tile[:, 0:P], tile[:, part]) for part in parts]
        for product in products:
            sums[...] += nl.sum(product, axis=1, keepdims=True)
        for part, product in zip(parts, products, strict=True):
            nl.store(out[:, part], nl.multiply(product, sums, dtype=x.dtype))
        return out

    with nkisim.checks(psum="off"):
        t = nkisim.profile(kernel, spec(P, 16384, dtype=BF16))
    assert said(t, "PSUM overflows")
    assert not said(t, "results wait for room in PSUM")


def test_tables_are_also_named_where_only_a_stretch_is_scheduled(monkeypatch):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // P):
            rows = nl.ds(i * P, P)
            nl.store(out[rows], nl.sqrt(nl.exp(nl.load(x[rows]))))
        return out

    x = spec(P * 400, 64)
    (whole,) = said(nkisim.profile(kernel.on(GEN3), x), "load the table")
    monkeypatch.setattr(whatif, "WINDOW", 400)
    (part,) = said(nkisim.profile(kernel.on(GEN3), x), "load the table")
    assert part.gain_us == pytest.approx(whole.gain_us, rel=0.1)


def test_time_of_scalar_without_its_tables_is_said_to_be_without():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(200):
            tile = nl.sqrt(nl.exp(tile))
        nl.store(out, tile)
        return out

    (found,) = said(nkisim.profile(kernel.on(GEN3), spec(P, 32)), "starting ")
    assert "Scalar instructions (loads of tables aside) takes" in found.text


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16])
def test_bf16_is_not_advised_to_who_has_it(dtype):
    """Every second element: of bf16 only neighbours are read at the double rate."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((P, 512), x.dtype, buffer=nl.shared_hbm)
        pairs = nl.load(x)
        left, right = pairs[:, 0:1024:2], pairs[:, 1:1024:2]
        for _ in range(16):
            total = nisa.tensor_tensor(left, right, op=nl.add)
        nl.store(out, total)
        return out

    (found,) = said(nkisim.profile(kernel, spec(P, 1024, dtype=dtype)), "two-input Vector")
    assert ("bf16 for all three" in found.text) == (dtype == np.float32)


@settings(max_examples=30)
@given(
    st.integers(1, 5),
    st.sampled_from([1, 64, 1024, 4096]),
    st.sampled_from([1, 16, 128]),
    st.sampled_from([np.float32, BF16]),
    st.sampled_from([GEN2, GEN3]),
)
def test_larger_and_smaller_tiles_are_not_both_advised(tiles, columns, rows, dtype, machine):
    """A running sum and maximum, in columns of one element, of a few loads, large or small."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[0], 1), nl.float32, buffer=nl.shared_hbm)
        top, total = nl.full((rows, 1), -1e30, nl.float32), nl.zeros((rows, 1), nl.float32)
        for j in nl.sequential_range(tiles):
            tile = nl.load(x[:, nl.ds(j * columns, columns)])
            total[...] = nl.add(total, nl.sum(nl.exp(tile), axis=1, keepdims=True))
            top[...] = nl.maximum(top, nl.max(tile, axis=1, keepdims=True))
        nl.store(out, nl.add(top, total))
        return out

    t = nkisim.profile(kernel.on(machine), spec(rows, tiles * columns, dtype=dtype))
    advised = [f for f in t.findings if f.tiles]
    assert len({f.tiles for f in advised}) <= 1
    assert all(f.gain_us > 0 for f in advised)
    assert not any("smaller tiles" in f.text or "larger tiles" in f.text for f in t.findings[:1])

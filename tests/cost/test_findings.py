"""Findings promise what the change gives: each kind, by a kernel without and with the change."""

from __future__ import annotations

import re
from collections import Counter

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from traces import spec

import nkisim
from kernels.giou import nki_giou_kernel, nki_giou_kernel_strict
from nkibook.validation import elementwise, layernorm, mamba, matmul, nkibench, vector_add
from nkisim.machine import GEN3
from nkisim.report import whatif

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")

MOVING = "Sync", "DMA queues"  # what has less to do when less is loaded
FACTOR = 1.3  # a gain is within this of what the change gives, either way


def scaled(tile, engine):
    """An instruction with one input, on the engine."""
    if engine is nisa.scalar_engine:
        return nisa.activation(nl.relu, tile)
    if engine is nisa.gpsimd_engine:
        return nisa.tensor_copy(tile, engine=engine)
    return nisa.tensor_scalar(tile, np.multiply, 2.0, engine=engine)


@nki.jit
def products(x, other):
    """Products in a row, every second one in memory `other`."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    last = tile = nl.load(x)
    for turn in range(16):
        result = nl.ndarray(x.shape, x.dtype, buffer=other if turn % 2 == 0 else nl.sbuf)
        result[...] = nisa.tensor_tensor(last, tile, op=nl.multiply)
        last, tile = result, last
    nl.store(out, value=last)
    return out


@nki.jit
def corners(x, engine, planes):
    """The four coordinates of boxes, each squared: read with a stride, or from planes."""
    shape = (128, 4, 512) if planes else (128, 512, 4)
    out = nl.ndarray((128, 4, 512), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x.reshape(shape))
    for c in range(4):
        corner = tile[:, c, :] if planes else tile[:, :, c]
        for _ in range(4):
            square = scaled(corner, engine)
        nl.store(out[:, c, :], square)
    return out


@nki.jit
def many_products(x, dtype):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x, dtype=dtype)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(32):
        total += nisa.nc_matmul(tile[:, 0:128], tile)
    nl.store(out, total)
    return out


@nki.jit
def in_parts(x, columns, engine):
    """Loaded as one, computed in parts."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for first in range(0, x.shape[1], columns):
        part = tile[:, first : first + columns]
        for _ in range(4):
            part = scaled(part, engine)
        nl.store(out[:, first : first + columns], part)
    return out


@nki.jit
def columns_of(x, step):
    out = nl.ndarray((x.shape[0], 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(out[rows], nl.load(x[rows, 0 : 512 * step : step]))
    return out


@nki.jit
def on_partitions(x, rows):
    """A vector of many elements in `rows` partitions."""
    shape = (rows, x.shape[0] // rows)
    out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x.reshape(shape)))
    return out


@nki.jit
def copy_of(x, columns):
    """Tile by tile, in transfers that are short beside their latency."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(x.shape[1] // columns):
        part = slice(k * columns, (k + 1) * columns)
        nl.store(out[:, part], nl.load(x[:, part]))
    return out


@nki.jit
def in_psum(x, dtype):
    """Products that stay in PSUM until the seventh after them is there."""
    out = nl.ndarray((17, 128, 512), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    made = []
    for k in range(24):
        made.append(nl.ndarray((128, 512), dtype, buffer=nl.psum))
        made[-1][...] = nisa.nc_matmul(tile[:, 0:128], tile)
        if k >= 7:
            copied = nisa.activation(nl.exp, made[-1])
            nl.store(out[k - 7], nisa.tensor_tensor(copied, made[k - 7], op=nl.add))
    return out


@nki.jit
def two_engines(x, other):
    """Two chains of one-input instructions, one on Vector, one on another engine."""
    out = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for at, engine in enumerate((nisa.vector_engine, other)):
        last = tile
        for _ in range(12):
            last = scaled(last, engine)
        nl.store(out[at], last)
    return out


@nki.jit
def softmax_like(x, columns, dtype):
    """Every tile is used twice, far apart."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    n = x.shape[1] // columns
    parts = [slice(k * columns, (k + 1) * columns) for k in range(n)]
    tiles = [nl.exp(nl.load(x[:, part]), dtype=dtype) for part in parts]
    total = nl.zeros((128, 1), nl.float32)
    for tile in tiles:
        total[...] = nl.add(total, nl.sum(tile, axis=1, keepdims=True))
    for part, tile in zip(parts, tiles, strict=True):
        nl.store(out[:, part], nl.multiply(tile, total, dtype=nl.float32))
    return out


@nki.jit
def in_tiles_of(x, rows):
    """exp, in tiles of so many rows."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // rows):
        tile = slice(i * rows, (i + 1) * rows)
        nl.store(out[tile], nl.exp(nl.load(x[tile])))
    return out


@nki.jit
def products_of(x, inner):
    """Matmuls with `inner` rows, as many as it takes to go over all of x, in PSUM."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(32 * 128 // inner):
        total += nisa.nc_matmul(tile[0:inner, 0:128], tile[0:inner])
    nl.store(out, total)
    return out


@nki.jit
def two_functions(x, by_function):
    """tanh of exp, 64 times: one after the other, or first all exp."""
    n = x.shape[1]
    out = nl.ndarray((128, 64 * n), x.dtype, buffer=nl.shared_hbm)
    tile, first = nl.load(x), nl.ndarray((128, 64 * n), x.dtype)
    last = nl.ndarray((128, 64 * n), x.dtype)
    parts = [slice(k * n, (k + 1) * n) for k in range(64)]
    steps = [lambda k: (first, nl.exp, tile), lambda k: (last, nl.tanh, first[:, k])]
    order = (
        [(s, k) for s in steps for k in parts]
        if by_function
        else [(s, k) for k in parts for s in steps]
    )
    for step, part in order:
        to, function, data = step(part)
        to[:, part] = function(data)
    nl.store(out, last)
    return out


@nki.jit
def copies_of(x, columns):
    """Of four parts, so that no line has many transfers under way."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(x.shape[2] // columns):
        part = slice(k * columns, (k + 1) * columns)
        nl.store(out[0, :, part], nl.load(x[0, :, part]))
        nl.store(out[1, :, part], nl.load(x[1, :, part]))
        nl.store(out[2, :, part], nl.load(x[2, :, part]))
        nl.store(out[3, :, part], nl.load(x[3, :, part]))
    return out


@nki.jit
def sums_of(x, columns):
    """Of seven parts, so that no line has many transfers under way."""
    out = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(x.shape[2] // columns):
        part = slice(k * columns, (k + 1) * columns)
        left = nl.load(x[0, :, part]) + nl.load(x[1, :, part])
        left += nl.load(x[2, :, part])
        left += nl.load(x[3, :, part])
        left += nl.load(x[4, :, part])
        left += nl.load(x[5, :, part])
        left += nl.load(x[6, :, part])
        nl.store(out[:, part], left)
    return out


@nki.jit
def weighted(x, weights, kept):
    """Each tile of rows times the same weights, in parts that are loaded once or for each tile."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    parts = [slice(k * 1024, (k + 1) * 1024) for k in range(x.shape[1] // 1024)]
    once = [nl.load(weights[:, part]) for part in parts] if kept else []
    for i in range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        for k, part in enumerate(parts):
            weight = once[k] if kept else nl.load(weights[:, part])
            nl.store(out[rows, part], nl.multiply(nl.load(x[rows, part]), weight, dtype=x.dtype))
    return out


@nki.jit
def in_a_row(x, rows):
    """Fifty steps that use each other's results, on as many elements in `rows` partitions."""
    shape = (rows, x.shape[0] // rows)
    out = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x.reshape(shape))
    for _ in range(50):
        tile = nisa.tensor_scalar(tile, np.multiply, 2.0, engine=nisa.vector_engine)
    nl.store(out, tile)
    return out


@nki.jit
def gathered(x, rows, columns):
    """Rows by number, in pieces of so many columns."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(columns)[None, :]
    at = nl.load(rows)
    for k in nl.affine_range(x.shape[1] // columns):
        nl.store(out[p, k * columns + f], nl.load(x[at[p, 0], k * columns + f]))
    return out


VECTOR, SCALAR, GPSIMD = nisa.vector_engine, nisa.scalar_engine, nisa.gpsimd_engine
TILE, BOXES = spec(128, 512), spec(128, 512, 4)
FEW, LONG, LONGER = spec(16, 16384), spec(128, 32768), spec(128, 65536)
F4, BF16 = nl.float32, nl.bfloat16
WIDE, THIN, HALF = spec(512, 2048), spec(128, 64), spec(128, 512, dtype=BF16)
MANY, WEIGHTS = spec(1024, 4096, dtype=BF16), spec(128, 4096)
PARTS, FOUR = spec(7, 16, 512), spec(4, 16, 512)
ROWS, AT = spec(128, 2048), spec(128, 1, dtype=np.int32)
CHANGES = {
    "operand to PSUM": ("two-input Vector", products, (TILE, nl.sbuf), (TILE, nl.psum)),
    "planes, Scalar": ("stride of 16", corners, (BOXES, SCALAR, False), (BOXES, SCALAR, True)),
    "planes, Vector": ("stride of 16", corners, (BOXES, VECTOR, False), (BOXES, VECTOR, True)),
    "bf16 matmul": ("fp32 operands", many_products, (TILE, nl.float32), (TILE, nl.bfloat16)),
    "longer, Vector": ("use longer free axes", in_parts, (TILE, 32, VECTOR), (TILE, 64, VECTOR)),
    "longer, GpSimd": ("use longer free axes", in_parts, (TILE, 64, GPSIMD), (TILE, 128, GPSIMD)),
    "longer runs": ("contiguous runs", columns_of, (spec(512, 2048), 4), (spec(512, 2048), 1)),
    "more queues": ("DMA engines", on_partitions, (spec(32768), 1), (spec(32768), 16)),
    "larger transfers": ("would hide their latency", copy_of, (FEW, 128), (FEW, 256)),
    "Scalar for GpSimd": ("that they share", two_engines, (TILE, GPSIMD), (TILE, SCALAR)),
    "half the PSUM": ("room in PSUM", in_psum, (TILE, nl.float32), (TILE, nl.bfloat16)),
    "half the bytes": ("room in SBUF", softmax_like, (LONG, 4096, F4), (LONG, 4096, BF16)),
    "all lanes": ("of 128 lanes", in_tiles_of, (WIDE, 4), (WIDE, 64)),
    "all of the array": ("128 x 128 array", products_of, (HALF, 16), (HALF, 128)),
    "all lanes, in a row": ("of 128 lanes", in_a_row, (spec(16384), 16), (spec(16384), 128)),
    "kept": ("was loaded before", weighted, (MANY, WEIGHTS, False), (MANY, WEIGHTS, True)),
    "by function": ("another function", two_functions, (THIN, False), (THIN, True)),
    "fewer transfers": ("by the Sync", copies_of, (FOUR, 4), (FOUR, 8)),
    "larger tiles": ("tiles are small", sums_of, (PARTS, 4), (PARTS, 8)),
    "fewer gathers": ("by GpSimd", gathered, (ROWS, AT, 32), (ROWS, AT, 64)),
    "what fits": ("SBUF overflows", softmax_like, (LONGER, 4096, F4), (LONGER, 4096, BF16)),
}


@pytest.mark.filterwarnings("ignore:.*tiles alive at once:nkisim.NkiWarning")
@pytest.mark.parametrize("case", CHANGES)
def test_the_gain_is_what_the_change_gives(case):
    text, kernel, before, after = CHANGES[case]
    t = nkisim.profile(kernel, *before)
    claimed = sum(f.gain_us for f in t.findings if text in f.text)
    real = t.latency_us - nkisim.profile(kernel, *after).latency_us
    assert real / FACTOR <= claimed <= real * FACTOR


@pytest.mark.filterwarnings("ignore:nisa.activation. copy with a bias tile:nkisim.NkiWarning")
@pytest.mark.parametrize(
    ("kernel", "args"),
    [
        (nki_giou_kernel, (spec(262144, 4), spec(262144, 4), 1e-7, False)),
        (nki_giou_kernel_strict, (spec(1024, 1024), spec(1024, 1024))),
        (layernorm.layernorm_v1, (spec(512, 4096), spec(4096), spec(4096))),
        (mamba.mamba_v1, (*2 * [spec(1, 256, 512)], spec(256, 16), *2 * [spec(1, 16, 512)])),
        (nkibench.rope, (spec(128, 5120), *2 * [spec(64, 5120)])),
        (matmul.matmul_hoisted, 2 * [spec(1024, 1024, dtype=nl.bfloat16)]),
        (vector_add.add_columns, (spec(12800), spec(12800), 128)),
        (elementwise.exp, (spec(1024, 2048),)),
    ],
)
def test_no_gain_of_the_kernels_of_the_book_is_beyond_the_next_limit(kernel, args):
    t = nkisim.profile(kernel, *args)
    for f in t.findings[1:]:
        assert f.location is not None
        # At most, a change halves what the busiest resource does for its elements; but what need
        # not be loaded at all leaves no more than the work of the engines.
        least = t.roofline[1] / 2
        if "was loaded before" in f.text:
            engines = [use.busy_us for name, use in t.engines.items() if name not in MOVING]
            least = max(engines)
        assert 0 < f.gain_us <= t.body_us - least
    assert [f.gain_us for f in t.findings[1:]] == sorted(
        (f.gain_us for f in t.findings[1:]), reverse=True
    )


@pytest.mark.parametrize("case", ["longer, GpSimd", "longer runs"])
def test_of_long_work_a_stretch_is_scheduled_and_counts_for_the_rest(case, monkeypatch):
    text, kernel, before, _ = CHANGES[case]
    whole = nkisim.profile(kernel, *before)
    want = [f.gain_us for f in whole.findings if text in f.text]
    monkeypatch.setattr(whatif, "WINDOW", len(whole._core.work.tasks) // 2)
    part = [f.gain_us for f in nkisim.profile(kernel, *before).findings if text in f.text]
    assert part == pytest.approx(want, rel=0.2)
    assert part != want


def test_sums_of_bf16_products_are_not_said_to_be_of_fp32_operands():
    t = nkisim.profile(products_of, HALF, 128)
    assert not [f for f in t.findings if "fp32" in f.text]


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16])
def test_only_rows_of_fp32_are_said_to_take_passes(dtype):
    """What the row is multiplied by is of fp32 either way."""

    @nki.jit
    def kernel(x, w):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, last = nl.load(x), nl.ndarray(x.shape, x.dtype)
        n = x.shape[1]
        every = nl.load(w)
        for i in nl.sequential_range(w.shape[1] // n):
            last[...] = nl.multiply(tile, every[:, nl.ds(i * n, n)].broadcast_to(x.shape))
        nl.store(out, last)
        return out

    t = nkisim.profile(kernel, TILE, spec(1, 64 * TILE.shape[1], dtype=dtype))
    said = [f for f in t.findings if "broadcasts rows of fp32" in f.text]
    assert bool(said) == (dtype == np.float32)


def round_trips(x):
    """Each store waits for the load before, each load for the store."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in range(20):
        nl.store(out, tile)
        tile = nl.load(out)
    nl.store(out, tile)
    return out


def test_what_waiting_waits_for_is_named():
    t = nkisim.profile(nki.jit(round_trips), THIN)
    first = t.findings[0]
    assert "waits determine the time" in first.text
    assert "for the results of" in first.text
    assert "20 times one after the other" in first.text
    assert "round_trips" in str(first.location)


def test_the_dearest_line_is_said_to_have_most_of_the_time_only_if_it_does():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(8):
            part = slice(k * 1024, (k + 1) * 1024)
            tile = nl.load(x[:, part])
            tile = nisa.tensor_scalar(tile, np.multiply, 2.0, engine=VECTOR)
            tile = nisa.tensor_scalar(tile, np.maximum, 2.0, engine=VECTOR)
            tile = nisa.tensor_scalar(tile, np.add, 2.0, engine=VECTOR)
            tile = nisa.tensor_scalar(tile, np.minimum, 2.0, engine=VECTOR)
            tile = nisa.tensor_scalar(tile, np.subtract, 2.0, engine=VECTOR)
            nl.store(out[:, part], tile)
        return out

    text = nkisim.profile(kernel, spec(128, 8192)).findings[0].text
    assert "Vector Engine busy" in text
    assert "the largest part, 20%, of it in" in text
    assert "most of it in" in nkisim.profile(products_of, HALF, 16).findings[0].text


@pytest.mark.filterwarnings("ignore:.*tiles alive at once:nkisim.NkiWarning")
def test_spills_are_told_by_what_is_stored_and_what_is_loaded():
    t = nkisim.profile(softmax_like, LONGER, 4096, F4)
    moved = Counter()
    for task in t._core.work.tasks:
        if task.label in ("spill", "reload"):
            moved[task.label] += task.transfer.hbm_bytes
    text = next(f.text for f in t.findings if "SBUF overflows" in f.text)
    assert f"{moved['spill'] / 1e6:.1f} MB are stored" in text
    assert f"{moved['reload'] / 1e6:.1f} MB are loaded again" in text


def test_what_never_fits_is_told():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.exp(nl.load(x)))
        return out

    with nkisim.checks(sbuf="off", tile="off"):
        large, small = (nkisim.profile(kernel, spec(128, n)) for n in (40000, 4000))
    assert any("more SBUF is needed at once than there is" in f.text for f in large.findings)
    assert not any("is needed at once" in f.text for f in small.findings)


def test_no_gain_of_long_work_is_beyond_what_other_engines_need(monkeypatch):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 128, 512), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(200):
            total += nisa.nc_matmul(tile[:, 0:128], tile)
        for k in nl.affine_range(512):
            tile[:, k : k + 1] = nisa.tensor_scalar(tile[:, k : k + 1], np.maximum, 0.0)
        nl.store(out[0], total)
        nl.store(out[1], tile)
        return out

    monkeypatch.setattr(whatif, "WINDOW", 300)
    t = nkisim.profile(kernel, TILE)
    found = [f for f in t.findings if "Vector instructions spend" in f.text]
    assert all(f.gain_us <= t.body_us - t.engines["Tensor"].busy_us for f in found)


def test_transfers_that_are_only_started_are_no_data():
    t = nkisim.profile(copies_of, FOUR, 4)
    assert t.bound.name == "Sync"
    assert t.roofline[0] == "DMA queues"
    assert {r.label for r in t.lines if r.resource == "Sync"} == {"start of load", "start of store"}
    assert t.findings[0].location is not None
    gathers = nkisim.profile(gathered, ROWS, AT, 64)
    starts = [i for i in gathers.intervals if i.track == "GpSimd"]
    assert [i.label for i in starts] == 32 * ["start of dma_gather"]


def test_no_order_of_tables_is_advised_that_the_data_does_not_allow():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(16):
            tile = nl.tanh(nl.exp(tile))
        nl.store(out, tile)
        return out

    t = nkisim.profile(kernel, THIN)
    assert not [f for f in t.findings if "another function" in f.text]


def test_a_sum_over_partitions_uses_all_that_it_needs():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 512), nl.float32, buffer=nl.shared_hbm)
        tile, ones = nl.load(x), nl.full((128, 1), 1.0, x.dtype)
        total = nl.zeros((1, 512), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(64):
            total += nisa.nc_matmul(ones, tile)
        nl.store(out, total)
        return out

    t = nkisim.profile(kernel, HALF)
    assert not [f for f in t.findings if "part of the engine" in f.text]


def test_the_stretch_of_long_work_is_where_most_is_at_stake(monkeypatch):
    @nki.jit
    def kernel(x, y):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(40):
            tile = nisa.tensor_tensor(tile, tile, op=nl.multiply)
        nl.store(out, tile)
        moved = nl.ndarray(y.shape, y.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(y.shape[1] // 512):
            part = slice(k * 512, (k + 1) * 512)
            last = nl.load(y[:, part])
            for _ in range(2):
                few = nisa.tensor_tensor(last[:, 0:4], last[:, 4:8], op=nl.multiply)
            nl.store(moved[:, part], nl.add(last, few[:, 0:1]))
        return out, moved

    args = spec(128, 4096), spec(128, 65536)
    whole = [f.gain_us for f in nkisim.profile(kernel, *args).findings if "two-input" in f.text]
    monkeypatch.setattr(whatif, "WINDOW", 300)
    part = [f.gain_us for f in nkisim.profile(kernel, *args).findings if "two-input" in f.text]
    assert whole
    assert part == pytest.approx(whole, rel=0.3)


def test_one_large_tile_is_said_to_keep_transfers_and_engines_apart():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(4):
            tile = nisa.tensor_scalar(tile, np.multiply, 2.0, engine=nisa.vector_engine)
        nl.store(out, tile)
        return out

    t = nkisim.profile(kernel, spec(128, 8192))
    assert "for the results of load" in t.findings[0].text
    (found,) = [f for f in t.findings if "everything else waits for one load: in smaller" in f.text]
    assert found.gain_us > 0.05 * t.latency_us


@pytest.mark.filterwarnings("ignore:.*tiles alive at once:nkisim.NkiWarning")
def test_spills_of_what_was_only_filled_have_findings_too():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        parts = [slice(k * 4096, (k + 1) * 4096) for k in range(x.shape[1] // 4096)]
        sums = [nl.zeros((128, 4096), nl.float32) for _ in parts]
        for _ in range(2):
            for total, part in zip(sums, parts, strict=True):
                total += nl.load(x[:, part])
        for total, part in zip(sums, parts, strict=True):
            nl.store(out[:, part], total)
        return out

    t = nkisim.profile(kernel, LONGER)
    assert t.spilled_bytes
    assert any("SBUF overflows" in f.text for f in t.findings)


def test_loads_that_the_compiler_may_repeat_are_named_with_what_they_would_take():
    """On trn2, 512 products load 32 and 128 KiB each: 512 x 8 rows a DMA engine, of 10 ns and 256
    or 1024 B at 23.1 B/ns."""
    lhs_t, rhs = spec(2048, 1024, dtype=nl.bfloat16), spec(2048, 2048, dtype=nl.bfloat16)

    def named(kernel, *options):
        found = nkisim.profile(kernel.on(GEN3), lhs_t, rhs, *options)
        return found, [f.text for f in found.findings if "modelled as left out" in f.text]

    found, (text,) = named(matmul.matmul_tiled)
    count, least = map(int, re.search(r"(\d+) loads .* at least (\d+) µs", text).groups())
    assert count == found.choices["load hoisted out of a loop"]
    loads = 512 * 8 * (2 * 10 + (256 + 1024) / 23.1) / 1e3
    assert loads + found.overhead_us < least < 1.1 * (loads + found.overhead_us)
    assert not named(matmul.matmul_loads_first)[1]

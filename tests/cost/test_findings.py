"""Findings promise what the change gives: each kind, by a kernel without and with the change."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from kernels.giou import nki_giou_kernel, nki_giou_kernel_strict
from kernels.validation import elementwise, layernorm, mamba, matmul, nkibench, vector_add
from nkisim.cost import whatif

FACTOR = 1.3  # a gain is within this of what the change gives, either way


def spec(*shape, dtype=np.float32):
    return nkisim.TensorSpec(shape, np.dtype(dtype))


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


VECTOR, SCALAR, GPSIMD = nisa.vector_engine, nisa.scalar_engine, nisa.gpsimd_engine
TILE, BOXES = spec(128, 512), spec(128, 512, 4)
FEW, LONG, LONGER = spec(16, 16384), spec(128, 32768), spec(128, 65536)
F4, BF16 = nl.float32, nl.bfloat16
CHANGES = {
    "operand to PSUM": ("two-input Vector", products, (TILE, nl.sbuf), (TILE, nl.psum)),
    "planes, Scalar": ("stride of 16", corners, (BOXES, SCALAR, False), (BOXES, SCALAR, True)),
    "planes, Vector": ("stride of 16", corners, (BOXES, VECTOR, False), (BOXES, VECTOR, True)),
    "bf16 matmul": ("fp32 operands", many_products, (TILE, nl.float32), (TILE, nl.bfloat16)),
    "longer, Vector": ("on starting", in_parts, (TILE, 32, VECTOR), (TILE, 64, VECTOR)),
    "longer, GpSimd": ("on starting", in_parts, (TILE, 64, GPSIMD), (TILE, 128, GPSIMD)),
    "longer runs": ("contiguous runs", columns_of, (spec(512, 2048), 4), (spec(512, 2048), 1)),
    "more queues": ("DMA engines", on_partitions, (spec(32768), 1), (spec(32768), 16)),
    "larger transfers": ("of twice the size", copy_of, (FEW, 128), (FEW, 256)),
    "Scalar for GpSimd": ("port that they share", two_engines, (TILE, GPSIMD), (TILE, SCALAR)),
    "half the PSUM": ("room in PSUM", in_psum, (TILE, nl.float32), (TILE, nl.bfloat16)),
    "half the bytes": ("room in SBUF", softmax_like, (LONG, 4096, F4), (LONG, 4096, BF16)),
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
        # At most, a change halves what the busiest resource does for its elements.
        assert 0 < f.gain_us <= t.body_us - t.roofline[1] / 2
    assert [f.gain_us for f in t.findings[1:]] == sorted(
        (f.gain_us for f in t.findings[1:]), reverse=True
    )


@pytest.mark.parametrize("case", ["longer, Vector", "longer runs"])
def test_of_long_work_a_stretch_is_scheduled_and_counts_for_the_rest(case, monkeypatch):
    text, kernel, before, _ = CHANGES[case]
    whole = nkisim.profile(kernel, *before)
    want = [f.gain_us for f in whole.findings if text in f.text]
    monkeypatch.setattr(whatif, "WINDOW", len(whole._core.work.tasks) // 2)
    part = [f.gain_us for f in nkisim.profile(kernel, *before).findings if text in f.text]
    assert part == pytest.approx(want, rel=0.2)
    assert part != want

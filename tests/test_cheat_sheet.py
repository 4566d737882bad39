"""Each idiom of the cheat sheet, in a kernel of its dialect, computes what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nkibook.figures.cheat_sheet import COSTS, ENGINES, IDIOMS, MEMORIES, table

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((2, 128, 512), np.float32)
W = rng.standard_normal((1, 512), np.float32)
COLUMN = X[:, :1]

POWERS = np.exp(2 * X + COLUMN)
EXPECTED = {
    "load": X,
    "store": X,
    "two tiles, element by element": X + Y,
    "a tile, a number, a column: `(a * 2) + col`": 2 * X + COLUMN,
    "`(a * col) + b`, in one pass": X * COLUMN + Y,
    "`exp(a * 2 + col)`": POWERS,
    "the same exponential, and its sum along the row": POWERS.sum(1, keepdims=True),
    "maximum along the row": X.max(1, keepdims=True),
    "one row on all partitions": np.repeat(W, 128, 0),
    "product, sums over partitions: `a.T @ b`": X[:, :128].T @ Y,
    "accumulate the product in PSUM": X[:, :128].T @ Y,
    "PSUM to SBUF": X[:, :128].T @ Y,
    "transpose, Tensor Engine": X[:, :128].T,
    "column numbers": np.tile(np.arange(512, dtype=np.float32), (128, 1)),
}

HEADS = {
    "neuronxcc.nki": """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x, y, w):
    out = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.shared_hbm)
    a, b, col = nl.load(x), nl.load(y), nl.load(x[:, 0:1])
    c, s = nl.copy(a), nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    p = nisa.nc_matmul(a[:, 0:128], b)
    {idiom}
    nl.store(out, value=nl.copy({result}))
    return out
""",
    "nki": """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, y, w):
    out = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    col = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.dma_copy(dst=c, src=x)
    nisa.dma_copy(dst=col, src=x[:, 0:1])
    {before}
    {idiom}
    kept = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=kept, src={result})
    nisa.dma_copy(dst=out, src=kept)
    return out
""",
}


@pytest.mark.parametrize("dialect", HEADS)
@pytest.mark.parametrize(("what", "neuronxcc", "today"), [i for i in IDIOMS if i[0] in EXPECTED])
def test_an_idiom_computes_what_it_says(
    what: str, neuronxcc: str, today: str, dialect: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1" if dialect != "nki" else "trn2")
    idiom = today if dialect == "nki" else neuronxcc
    expected = EXPECTED[what]
    result = {(128, 1): "s", (128, 128): "t"}.get(expected.shape, "c")
    if "nc_matmul" in idiom:
        result = "p"
    before = ""
    if "PSUM" in what:
        before = "nisa.nc_matmul(dst=p, stationary=a[:, 0:128], moving=b)"
    if "accumulate" in what:
        expected = expected * (2 if dialect == "nki" else 1)  # what was in p stays
    file = tmp_path / "idiom.py"
    text = HEADS[dialect].format(
        shape=expected.shape, idiom=idiom.replace("\n", "\n    "), result=result, before=before
    )
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("idiom", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    np.testing.assert_allclose(module.kernel(X, Y, W), expected, rtol=1e-3, atol=1e-3)


def test_every_idiom_is_tested_or_is_no_computation() -> None:
    names = {what for what, _, _ in IDIOMS}
    assert set(EXPECTED) <= names
    assert names - set(EXPECTED) == {
        "declare a tile",
        "a last tile with fewer rows",
        "an unrolled loop; a loop with independent iterations",
    }


@pytest.mark.parametrize("rows", [MEMORIES, ENGINES, COSTS])
def test_a_table_has_a_figure_for_every_generation(rows) -> None:
    lines = table(rows).splitlines()
    assert len(lines) == len(rows) + 2
    assert all(line.count("|") == 5 for line in lines)

"""`python -m nkisim translate-check`: a kernel in `neuronxcc.nki` against its translations."""

from __future__ import annotations

import re

import pytest

OLD = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

@nki.jit
def scaled(x, s):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    one = nl.arange(1)[None, :]
    for i in nl.affine_range((x.shape[0] + 127) // 128):
        rows, cols = i * 128 + nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
        tile = nl.load(x[rows, cols], mask=rows < x.shape[0])
        scale = nl.load(s[rows, one], mask=rows < x.shape[0])
        product = nl.multiply(tile, scale, mask=rows < x.shape[0])
        nl.store(out[rows, cols], product, mask=rows < x.shape[0])
    return out

rng = np.random.default_rng(0)
scaled(rng.standard_normal((200, 64), np.float32), rng.standard_normal((200, 1), np.float32))
"""
NEW = """
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

@nki.jit
def scaled(x, s):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range((x.shape[0] + 127) // 128):
        first, last = i * 128, min(i * 128 + 128, x.shape[0])
        tile = nl.ndarray((last - first, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        scale = nl.ndarray((last - first, 1), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first:last, :])
        nisa.dma_copy(dst=scale, src=s[first:last, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=out[first:last, :], src=tile)
    return out

rng = np.random.default_rng(0)
scaled(rng.standard_normal((200, 64), np.float32), rng.standard_normal((200, 1), np.float32))
"""


@pytest.fixture
def check(run_python, tmp_path):
    """Run translate-check on OLD and another program; (exit status, the report)."""

    def run(new, old=OLD):
        for name, text in (("old.py", old), ("new.py", new)):
            (tmp_path / name).write_text(text)
        done = run_python("-m", "nkisim", "translate-check", "old.py", "new.py", check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_right_translation_agrees(check):
    status, report, _ = check(NEW)
    assert status == 0
    assert "result 0, float32[200, 64]: equal to the last bit" in report
    assert "modelled by nkisim, not measured" in report
    (latency,) = (line for line in report.splitlines() if line.startswith("latency µs"))
    assert float(latency.split()[2]) > 0
    assert "The programs agree." in report


@pytest.mark.parametrize(
    ("change", "by", "said"),
    [
        ("op0=nl.multiply", "op0=nl.add", "12,800 of 12,800 elements differ"),
        ("(x.shape[0] + 127) // 128", "x.shape[0] // 128", "4,608 of 12,800 elements differ by"),
        ("out[first:last, :]", "out[0 : last - first, :]", "the first at [0, 0]"),
        ("dtype=x.dtype, buffer=nl.shared", "dtype=nl.bfloat16, buffer=nl.shared",
         "bfloat16[200, 64] in new.py"),
        ("return out", "return out, out", "results: 1 in old.py, 2 in new.py"),
        ("default_rng(0)", "default_rng(1)", "x, s of new.py is no argument of old.py's kernel"),
    ],
    ids=["operator", "tail", "destination", "dtype", "results", "data"],
)  # fmt: skip
def test_a_wrong_translation_is_told(check, change, by, said):
    assert change in NEW
    status, report, error = check(NEW.replace(change, by))
    assert status == 1, error
    assert said in report
    assert "The programs do not agree." in report


def test_both_writers_of_the_first_difference_are_named(check):
    _, report, _ = check(NEW.replace("op0=nl.multiply", "op0=nl.add"))
    old, new = (line for line in report.splitlines() if "written by" in line)
    assert "old.py: " in old
    assert "nl.store(out[rows, cols], product" in old
    assert "nisa.dma_copy(dst=out[first:last, :], src=tile)" in new


def test_what_nothing_wrote_is_told(check):
    _, report, _ = check(NEW.replace("(x.shape[0] + 127) // 128", "x.shape[0] // 128"))
    assert "new.py: nan, which no instruction writes" in report


def test_rounding_is_no_difference(check):
    exact = NEW.replace("op0=nl.multiply, operand0=scale", "op0=nl.multiply, operand0=2.0")
    thrice = exact.replace("operand0=2.0", "operand0=2.0000002")
    status, report, _ = check(thrice, old=exact)
    assert status == 0
    assert "equal up to rounding: the largest difference is" in report


def test_programs_that_launch_nothing_do_not_agree(check):
    status, report, _ = check("print('nothing')\n")
    assert status == 1
    assert "old.py launched 1 kernels, new.py 0" in report


def test_arrays_of_jax_are_seen(check):
    pytest.importorskip("jax")
    status, report, _ = check(NEW.replace(
        "scaled(rng.standard_normal((200, 64), np.float32), "
        "rng.standard_normal((200, 1), np.float32))",
        "import jax\njax.jit(scaled)(rng.standard_normal((200, 64), np.float32), "
        "rng.standard_normal((200, 1), np.float32)).block_until_ready()",
    ))  # fmt: skip
    assert status == 0
    assert "equal to the last bit" in report


def test_an_error_of_a_program_is_its_own(check):
    status, _, error = check(NEW.replace("nisa.tensor_scalar(dst=tile", "nisa.tensor_scalar(dst=x"))
    assert status == 1
    assert "new.py" in error
    assert "translation.py" not in error
    assert "rule:" in error


def test_both_programs_are_for_one_chip_and_columns_name_theirs(check):
    status, report, _ = check(NEW)
    assert status == 0
    assert re.search(r"old.py +new.py +ratio\nNeuronCore +v3 +v3 +-\n", report)
    assert "two chips" not in report
    other = 'import os\nos.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn1"\n'
    status, report, _ = check(NEW, other + OLD)
    assert re.search(r"NeuronCore +v2 +v3 +-\n", report)
    assert "two chips" in report

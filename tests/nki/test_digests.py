"""Two programs that differ in anything that running reads have two digests, in every bridge."""

from __future__ import annotations

import neuronxcc.nki as old
import neuronxcc.nki.isa as oisa
import neuronxcc.nki.language as ol
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.ir.access import Affine
from nkisim.ir.dtypes import F32
from nkisim.numerics.ops.elementwise import Operators
from nkisim.numerics.ops.matmul import Product
from nkisim.numerics.program import Program
from nkisim.runtime.frameworks.programs import add_program

WIDE = 512  # values of an instruction by far more than the thousand that NumPy's text shows


@nki.jit
def kept(x, first):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.affine_select(
        dst=t,
        pattern=[[1, WIDE]],
        channel_multiplier=0,
        on_true_tile=t,
        on_false_value=0.0,
        offset=-first,
        cmp_op=nl.greater_equal,
    )
    nl.store(out, value=t)
    return out


@nki.jit
def numbered(x, first):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.sbuf)
    # Columns that are the same at both ends, and not between.
    nisa.memset(dst=t, value=0)
    nisa.iota(dst=t[:, 8:-8], pattern=[[1, WIDE - 16]], offset=first)
    y = nl.load(x)
    nisa.tensor_tensor(y, y, t, nl.multiply)
    nl.store(out, value=y)
    return out


@old.jit
def masked(x, first):
    out = ol.ndarray(x.shape, dtype=x.dtype, buffer=ol.shared_hbm)
    i, j = ol.mgrid[0:128, 0:WIDE]
    t = oisa.affine_select(
        pred=(j >= first), on_true_tile=ol.load(x), on_false_value=0.0, dtype=x.dtype
    )
    ol.store(out[i, j], value=t)
    return out


@old.jit
def constant(x, first):
    out = ol.ndarray(x.shape, dtype=x.dtype, buffer=ol.shared_hbm)
    values = np.ones((128, WIDE), np.float32)
    values[:, 8:first] = 0
    table = ol.shared_constant(values, dtype=ol.float32)
    ol.store(out, value=ol.multiply(ol.load(x), ol.load(table)))
    return out


@pytest.mark.parametrize("kernel", [kept, numbered, masked, constant], ids=lambda k: k.__name__)
def test_specialisations_under_jit_do_not_take_each_others_numbers(kernel):
    jax = pytest.importorskip("jax")
    x = np.ones((128, WIDE), np.float32)
    wanted = [kernel(x, first) for first in (100, 200)]
    assert (wanted[0] != wanted[1]).any()
    jitted = [jax.jit(lambda x, n=n: kernel(x, n)) for n in (100, 200)]
    for at in (0, 1, 0):
        np.testing.assert_array_equal(jitted[at](x), wanted[at])
    both = jax.jit(lambda x: (kernel(x, 100), kernel(x, 200)))(x)
    np.testing.assert_array_equal(both, wanted)


def test_how_tiles_are_stored_is_in_the_digest(monkeypatch):
    jax = pytest.importorskip("jax")

    @nki.jit
    def rounded(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=t, data=nl.load(x), op0=nl.multiply, operand0=1.0)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1e-3)
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y, src=t)
        nl.store(out, value=y)
        return out

    x = np.full((4, 8), 1.0, np.float32)
    compiled = jax.jit(rounded)
    plain = np.asarray(compiled(x))
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    precise = np.asarray(jax.jit(lambda x: rounded(x))(x))
    assert (plain != precise).all()
    np.testing.assert_array_equal(compiled(x), plain)


def made(kernel=kept):
    return kernel.specialize((np.ones((128, WIDE), np.float32), 100), {}).program


def _moved(program):
    instr = next(i for i in program.instructions if i.opcode == "affine_select")
    instr.ins = tuple([x.moved(1) if isinstance(x, Affine) else x for x in instr.ins])


CHANGES = {
    "stored": lambda p: setattr(p.trace.buffers[1], "stored", np.dtype(np.float16)),
    "partly written": lambda p: p.trace.partly_written.add(1),
    "undefined": lambda p: p.trace.read_undefined.add(1),
    "ranges": lambda p: setattr(p.trace, "strict_ranges", not p.trace.strict_ranges),
    "watched": lambda p: setattr(p.instructions[0], "watched", True),
    "contested": lambda p: setattr(
        p.instructions[0], "contested", (np.zeros((128, WIDE), bool), ValueError("both write"))
    ),
    "left out": lambda p: setattr(p.instructions[0], "undefined", np.zeros((128, WIDE), bool)),
    "mask": lambda p: setattr(p.instructions[0], "where", np.ones((128, WIDE), bool)),
    "engine": lambda p: setattr(p.instructions[0], "engine", p.instructions[1].engine),
    "an affine operand": _moved,
    "a setting": lambda p: setattr(p.instructions[0], "settings", Operators.of({"op": "x"})),
    "data": lambda p: setattr(p.trace.buffers[1], "data", np.zeros(3, F32)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_all_that_running_reads_is_in_the_digest(change):
    before, after = made(), made(kept._retraced())
    assert before is not after
    assert before.same_as(after)
    assert before.digest == after.digest
    changed = made(kept._retraced())
    CHANGES[change](changed)
    assert changed.digest != before.digest
    assert not changed.same_as(before)


def test_arrays_among_settings_are_compared_whole():
    digests = set()
    for at in (0, 2500, 4999):
        program = made(kept._retraced())
        program.instructions[1].settings = Product.of({"fresh": np.arange(5000) == at})
        digests.add(program.digest)
    assert len(digests) == 3


def test_a_setting_that_cannot_be_told_apart_is_an_error():
    program = made(kept._retraced())
    program.instructions[0].settings = Operators.of({"op": object()})
    with pytest.raises(TypeError, match="setting of type object"):
        _ = program.digest


def test_another_program_of_the_same_digest_is_refused(monkeypatch):
    monkeypatch.setattr(Program, "digest", "0" * 64)
    for _ in range(2):
        add_program(made(kept._retraced()))
    with pytest.raises(RuntimeError, match="two programs"):
        add_program(made(masked._retraced()))

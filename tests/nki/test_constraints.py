"""Documented constraints of NKI 0.6: a breach is refused with rule and fix, its neighbour runs."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import nki06_constraints as table
import nki06_constraints_language as language
import numpy as np
import pytest
from nki06_constraints import CORES, DOCUMENTED, HOST

from nkisim.errors import KernelError, NkiWarning
from nkisim.frontends.nki.session import current

TABLES = (table, language)
BROKEN = {k: v for t in TABLES for k, v in getattr(t, "BROKEN", {}).items()}
SHOWN = {k: v for t in TABLES for k, v in getattr(t, "SHOWN", {}).items()}
EXEMPT = {k: v for t in TABLES for k, v in getattr(t, "EXEMPT", {}).items()}


def refused(call, says):
    """Whether a call is refused with rule and fix."""
    with pytest.raises(KernelError, match=says) as found:
        call()
    assert "rule:" in str(found.value)
    assert "fix:" in str(found.value)


def launched(buffer):
    """A launch of a kernel that returns a tensor in some memory."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=buffer)
        nisa.dma_copy(out, x)
        return out

    return kernel(np.ones((2, 2), np.float32))


def execute(code, target, monkeypatch):
    """`code`, in a kernel for a generation or outside of one."""
    monkeypatch.setenv(
        "NEURON_PLATFORM_TARGET_OVERRIDE", {HOST: "trn2", CORES: "trn2"}.get(target, target)
    )
    if target == HOST:
        names = {"nki": nki, "nl": nl, "nisa": nisa, "np": np, "launched": launched}
        exec(compile(code, "<a constraint>", "exec"), names)
    else:
        run(code, 2 if target == CORES else 1)


def run(code, cores=1):
    """`code` in a kernel."""

    def made(buffer):
        def tile(*shape_and_dtype):
            *shape, last = shape_and_dtype
            shape, dtype = (shape, last) if not isinstance(last, int) else ((*shape, last), "")
            return nl.ndarray(tuple(shape), dtype or nl.float32, buffer=buffer)

        return tile

    def filled(buffer, value=1):
        def tile(*shape_and_dtype):
            found = made(buffer)(*shape_and_dtype)
            nisa.memset(found, value)
            return found

        return tile

    def hbm(buffer):
        def tensor(*shape_and_dtype):
            found = made(buffer)(*shape_and_dtype)
            nisa.dma_copy(found, filled(nl.sbuf)(*shape_and_dtype))
            return found

        return tensor

    names = {
        "nl": nl,
        "nisa": nisa,
        "s": filled(nl.sbuf),
        "p": filled(nl.psum),
        "z": filled(nl.sbuf, 0),
        "q": made(nl.psum),  # not filled: what a matmul writes to
        "h": hbm(nl.hbm),
        "sh": hbm(nl.shared_hbm),
        "np": np,
        "v": lambda t: current().values_of(t),
        "refused": refused,
        "warns": lambda says: pytest.warns(NkiWarning, match=says),
    }

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        exec(compile(code, "<a constraint>", "exec"), names)
        return out

    return kernel[cores](np.ones((2, 2), np.float32))


def test_every_constraint_is_broken_shown_or_exempt():
    wanted = [k for k in DOCUMENTED if k.startswith("language.")]
    kept = [k for k in [*BROKEN, *SHOWN, *EXEMPT] if k.startswith("language.")]
    assert sorted(kept) == sorted(wanted)
    assert {*BROKEN, *SHOWN, *EXEMPT} <= set(DOCUMENTED)


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
@pytest.mark.parametrize("constraint", BROKEN)
def test_a_breach_is_refused_and_its_neighbour_runs(constraint, monkeypatch):
    target, broken, kept, says = BROKEN[constraint]
    assert says
    refused(lambda: execute(broken, target, monkeypatch), says)
    execute(kept, target, monkeypatch)


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
@pytest.mark.parametrize("constraint", SHOWN)
def test_it_holds(constraint, monkeypatch):
    target, code = SHOWN[constraint]
    execute(code, target, monkeypatch)

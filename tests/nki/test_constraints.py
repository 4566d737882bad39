"""Documented constraints of NKI 0.6: a breach is refused with rule and fix, its neighbour runs."""

from __future__ import annotations

import json
from importlib.resources import files

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki06_constraints import BROKEN

from nkisim.errors import KernelError

_API = json.loads(files("nkisim.frontends.nki").joinpath("nki_api_0.6.json").read_text())
DOCUMENTED = {
    f"{module.removeprefix('nki.')}.{name}#{at}"
    for module, names in _API["modules"].items()
    for name, entry in names.items()
    for at in range(len(entry.get("constraints") or ()))
}


def run(code):
    """`code` in a kernel."""

    def made(buffer):
        def tile(*shape_and_dtype):
            *shape, last = shape_and_dtype
            shape, dtype = (shape, last) if not isinstance(last, int) else ((*shape, last), "")
            return nl.ndarray(tuple(shape), dtype or nl.float32, buffer=buffer)

        return tile

    def filled(buffer):
        def tile(*shape_and_dtype):
            found = made(buffer)(*shape_and_dtype)
            whole = "int" in str(found.dtype)
            nisa.memset(found, 1 if whole else 1.0)
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
        "q": made(nl.psum),  # not filled: what a matmul writes to
        "h": hbm(nl.hbm),
        "sh": hbm(nl.shared_hbm),
    }

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        eval(code, names)
        return out

    return kernel(np.ones((2, 2), np.float32))


def test_every_constraint_of_the_table_is_documented():
    assert set(BROKEN) <= DOCUMENTED


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
@pytest.mark.parametrize("constraint", BROKEN)
def test_a_breach_is_refused_and_its_neighbour_runs(constraint, monkeypatch):
    target, broken, kept, says = BROKEN[constraint]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    with pytest.raises(KernelError, match=says) as refused:
        run(broken)
    assert "rule:" in str(refused.value)
    assert "fix:" in str(refused.value)
    run(kept)

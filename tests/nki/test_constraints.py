"""Documented constraints of NKI 0.7: a breach is refused with rule and fix, its neighbour runs."""

from __future__ import annotations

import inspect
import re

import nki
import nki.collectives as collectives
import nki.compiler as compiler
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from constraints import nki as table
from constraints.nki import CORES, DOCUMENTED, HOST, OLD, isa, language, rest

import nkisim
from nkisim import errors
from nkisim.errors import KernelError, NkiWarning, UnsupportedError
from nkisim.frontends.nki.session import current

TABLES = (table, isa, language, rest)
BROKEN = {k: v for t in TABLES for k, v in getattr(t, "BROKEN", {}).items()}
SHOWN = {k: v for t in TABLES for k, v in getattr(t, "SHOWN", {}).items()}
EXEMPT = {k: v for t in TABLES for k, v in getattr(t, "EXEMPT", {}).items()}


def refused(call, says):
    """Whether a call is refused with rule and fix. Returns the error."""
    with pytest.raises(KernelError, match=says) as found:
        call()
    assert "rule:" in str(found.value)
    assert "fix:" in str(found.value)
    return found.value


def raised_by(function):
    """The errors that a docstring lists."""
    listed = inspect.getdoc(function).partition("\nRaises:\n")[2].partition("\n\n")[0]
    return {
        name.strip()
        for line in re.findall(r"^    (\w[\w, ]*):", listed, re.M)
        for name in line.split(",")
    }


def warns(says):
    return pytest.warns(NkiWarning, match=says)


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
    chip = target if target.startswith("trn") else "trn2"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)
    if target == OLD:
        monkeypatch.setenv("NKISIM_NKI", "0.6")
    if target == HOST:
        names = {"nki": nki, "nl": nl, "nisa": nisa, "np": np, "launched": launched}
        names["compiler"] = compiler
        names |= {"ncc": collectives, "nkisim": nkisim}
        names |= {"run": run, "warns": warns, "refused": refused}
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
        "ncc": collectives,
        "G": collectives.ReplicaGroup([[0]]),
        "s": filled(nl.sbuf),
        "p": filled(nl.psum),
        "z": filled(nl.sbuf, 0),
        "q": made(nl.psum),  # not filled: what a matmul writes to
        "h": hbm(nl.hbm),
        "sh": hbm(nl.shared_hbm),
        "np": np,
        "numbers": lambda n: nl.shared_constant(np.arange(n, dtype=np.int32).reshape(n, 1)),
        "v": lambda t: current().values_of(t),
        "refused": refused,
        "warns": warns,
    }

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if cores == 1:
            nisa.dma_copy(out, x)
        else:
            me = nl.program_id(0)
            nisa.dma_copy(out[me : me + 1], x[me : me + 1])
        exec(compile(code, "<a constraint>", "exec"), names)
        return out

    return kernel[cores](np.ones((2, 2), np.float32))


def test_every_constraint_is_broken_shown_or_exempt():
    kept = [
        k for t in TABLES for name in ("BROKEN", "SHOWN", "EXEMPT") for k in getattr(t, name, ())
    ]
    assert sorted(kept) == sorted(DOCUMENTED)
    assert all(EXEMPT.values())


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
@pytest.mark.parametrize("constraint", BROKEN)
def test_a_breach_is_refused_and_its_neighbour_runs(constraint, monkeypatch):
    target, broken, kept, says = BROKEN[constraint]
    assert says
    error = refused(lambda: execute(broken, target, monkeypatch), says)
    execute(kept, target, monkeypatch)
    module, _, name = constraint.partition("#")[0].rpartition(".")
    function = getattr({"isa": nisa, "language": nl}.get(module), name, None)
    if inspect.isfunction(function):
        assert type(error).__name__ in raised_by(function)


FUNCTIONS = {
    f"{short}.{name}": getattr(module, name)
    for short, module in (("nisa", nisa), ("nl", nl), ("ncc", collectives))
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
}
RAISE_NOTHING = {"nl.is_hbm", "nl.is_on_chip", "nl.is_psum", "nl.is_sbuf", "ncc.rank_id"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_which_errors_it_raises(name):
    listed = raised_by(FUNCTIONS[name]) - {"FileNotFoundError"}
    assert bool(listed) != (name in RAISE_NOTHING)
    assert all(issubclass(getattr(errors, error), KernelError) for error in listed)


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
@pytest.mark.parametrize("constraint", SHOWN)
def test_it_holds(constraint, monkeypatch):
    target, code = SHOWN[constraint]
    execute(code, target, monkeypatch)


def test_what_is_exempt_because_all_of_it_is_refused():
    views = [k for k, why in EXEMPT.items() if why == isa.NO_INDIRECT]
    assert len(views) == 18
    code = "refused(lambda: s(8, 4).indirect(z(8, 1, nl.uint32)), 'no tensor indirection')"
    run(code)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_fix_of_an_indirect_view_gathers(target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((33, 10), np.float32)
    offsets = rng.integers(0, 10, (33, 5), np.uint32)

    def kernel(x, index, mended):
        out = nl.ndarray(index.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        data = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        picks = nl.ndarray(index.shape, dtype=index.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=data, src=x)
        nisa.dma_copy(dst=picks, src=index)
        twice = nl.ndarray(index.shape, dtype=x.dtype, buffer=nl.sbuf)
        if mended:
            picked = nl.ndarray(index.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.nc_n_gather(dst=picked, data=data, indices=picks)
        else:
            picked = data.indirect(picks)
        nisa.tensor_scalar(dst=twice, data=picked, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out, src=twice)
        return out

    with pytest.raises(UnsupportedError, match="pass it in place of the view"):
        nki.simulate(kernel)(values, offsets, False)
    found = nki.simulate(kernel)(values, offsets, True)
    np.testing.assert_array_equal(found, 2 * np.take_along_axis(values, offsets.astype(int), 1))

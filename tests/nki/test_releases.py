"""NKI 0.7, which `import nki` is, and NKI 0.6, which NKISIM_NKI=0.6 chooses."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from dataclasses import dataclass

import nki
import nki.collectives
import nki.compiler
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki.compiler import CompileConfig, SpecializationConfig

from nkibook import facts
from nkisim import KernelError, NkiWarning
from nkisim.errors import ControlFlowError, ParameterError, UnknownNameError, UnsupportedError
from nkisim.frontends.nki import releases

X = np.arange(15, dtype=np.float32).reshape(5, 3)
MODULES = {"nl": nl, "nisa": nisa, "ncc": nki.collectives, "nki.compiler": nki.compiler}


def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, x)
    return out


@pytest.fixture
def old(monkeypatch):
    monkeypatch.setenv("NKISIM_NKI", "0.6")


def names(*kinds):
    """The names of the table that are of a module: (module, name)."""
    for change in releases.CHANGES:
        module, _, name = change.name.rpartition(".")
        if change.kind in kinds and module in MODULES:
            yield module, name


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "name"), list(names("new")))
def test_a_new_name_is_in_0_7_and_told_in_0_6(module, name, monkeypatch):
    assert hasattr(MODULES[module], name)
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    assert not hasattr(MODULES[module], name)
    with pytest.raises(UnknownNameError, match=f"{name} is new in NKI 0.7"):
        getattr(MODULES[module], name)


def test_every_name_of_the_table_is_documented_and_the_other_way_round():
    short = {"nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}
    documented = {
        f"{short.get(module, module)}.{name}"
        for module, found in facts.documented("nki").items()
        for name in found
    }
    dotted = {
        c.name for c in releases.CHANGES if re.fullmatch(r"(nl|nisa|ncc|nki)\.[\w.]+", c.name)
    }
    assert dotted - documented == {"ncc.ReplicaGroup.from_partition_op"}


def test_what_is_deprecated_or_removed_says_what_to_write():
    assert all(c.instead for c in releases.CHANGES if c.kind in ("deprecated", "removed"))
    assert len(releases.BY_NAME) == len(releases.CHANGES)


def test_the_version_follows_the_environment(monkeypatch):
    assert nki.__version__ == "0.7.0"
    monkeypatch.setenv("NKISIM_NKI", "0.6.0")
    assert nki.__version__ == "0.6.0"
    monkeypatch.setenv("NKISIM_NKI", "0.5")
    with pytest.raises(KernelError, match=r"NKISIM_NKI=0\.5") as found:
        nki.jit(copy)(X)
    assert "0.6 and 0.7" in found.value.rule


# -- Python ---------------------------------------------------------------------------------------


def any_python(x, *, rows: list):
    class Part:
        def __init__(self, at):
            self.at = at

    def parts():
        yield from map(Part, rows)

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for part in parts():
        match part:
            case Part(at=at) if at is not None:
                try:
                    raise ValueError(at)
                except ValueError as error:
                    nisa.dma_copy(out[error.args[0]], x[at])
    return out


def test_a_kernel_is_python_and_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nki.jit(any_python)(X, rows=list(range(5)))
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("how", ["NKISIM_NKI", "NKI_COMPILER_FRONTEND"])
def test_the_front_end_before_takes_a_subset(how, monkeypatch):
    monkeypatch.setenv(how, {"NKISIM_NKI": "0.6", "NKI_COMPILER_FRONTEND": "custom"}[how])
    with pytest.warns(NkiWarning) as found:
        nki.jit(any_python)(X, rows=list(range(5)))
    told = "\n".join(str(w.message) for w in found)
    for what in ("'try'", "'match'", "'class'", "keyword-only"):
        assert what in told


class Size(nl.NKIObject):
    rows: int = 3


@dataclass
class Data(nl.NKIObject):
    rows: int = 3


def test_equality_of_the_users_classes(monkeypatch):
    one = Size()
    assert one == one
    assert one != Size()
    assert Data() == Data()
    assert len({one, Size()}) == 2
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    assert one == Size()
    assert one != Size(rows=4)
    assert one != Data()
    assert Data() == Data()


# -- loops ----------------------------------------------------------------------------------------


def load(tensor):
    register = nisa.register_alloc()
    nisa.register_load(register, tensor)
    return register


@nki.jit
def by_range(x, n):
    tile = nl.load(x)
    for _ in nl.dynamic_range(load(n)):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def by_while(x, n):
    tile, left = nl.load(x), nl.load(n)
    go = load(left)
    while go:
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(go, left)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize(
    ("kernel", "fix"), [(by_range, r"nl\.fori_loop\("), (by_while, r"nl\.while_loop\(")]
)
def test_loops_that_0_7_has_not_are_refused_with_their_successor(kernel, fix, monkeypatch):
    n = np.array([[4]], np.int32)
    with pytest.raises(ControlFlowError, match=fix) as found:
        kernel(X, n)
    assert isinstance(found.value, TypeError)
    assert found.value.location.filename == __file__
    assert "NKISIM_NKI=0.6" in found.value.fix
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    np.testing.assert_array_equal(kernel(X, n), X + 4)  # as the fix says


# nl.range is on no page of AWS; its nki-library loops with it.
@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range", "range"])
def test_the_ranges_of_before_are_range(name):
    assert getattr(nl, name)(2, 9, 3) == range(2, 9, 3)


def variables(x, lower, upper):
    """What a body gets: a kernel that notes it, for bounds of some kinds."""
    seen = []

    def kernel(x):
        nl.fori_loop(lower(), upper(), lambda i: seen.append(i))
        return copy(x)

    nki.simulate(kernel)(x)
    return [(type(i).__name__, i.number()) for i in seen]


def test_the_variable_of_a_loop_is_a_scalar_unless_a_bound_is_a_register(monkeypatch):
    def register():
        return nisa.register_alloc(2)

    assert variables(X, lambda: 0, lambda: nisa.NkiScalar(2)) == [
        ("NkiScalar", 0),
        ("NkiScalar", 1),
    ]
    assert variables(X, lambda: 1, lambda: 2) == [("NkiScalar", 1)]
    assert variables(X, lambda: nisa.NkiScalar(1), register) == [("VirtualRegister", 1)]
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    assert variables(X, lambda: 1, lambda: 2) == [("VirtualRegister", 1)]


def test_a_scalar_as_the_condition_of_while_loop_says_that_no_page_has_it():
    @nki.jit
    def kernel(x, n):
        tile, left = nl.load(x), nl.load(n)

        def body(_):
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1)
            return nisa.scalar_load(left)

        nl.while_loop(nisa.scalar_load(left), body)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    with pytest.warns(NkiWarning, match="is not published"):
        np.testing.assert_array_equal(kernel(X, np.array([[3]], np.int32)), X + 3)


# -- configuration --------------------------------------------------------------------------------


def nested(inner, **options):
    """A kernel that calls another one."""

    @nki.jit(**options)
    def outer(x):
        return inner(x)

    return outer


def test_kernels_in_kernels_have_one_configuration(monkeypatch):
    checked, other = CompileConfig(barrier_check=True), CompileConfig(dead_code_elim=False)
    inner = nki.jit(copy, compile_config=checked)
    same = CompileConfig(barrier_check=True)
    assert same == checked != other
    np.testing.assert_array_equal(nested(inner, compile_config=same)(X), X)
    np.testing.assert_array_equal(nested(nki.jit(copy), compile_config=other)(X), X)
    for options in ({}, {"compile_config": other}):
        with pytest.raises(ParameterError, match=r"CompileConfig\(barrier_check=True\)") as found:
            nested(inner, **options)(X)
        assert found.value.location.filename == __file__
    allowed = SpecializationConfig(allow_nested_config_override=True)
    with pytest.warns(NkiWarning, match="barrier_check=True"):  # as the fix says
        np.testing.assert_array_equal(nested(inner, specialization_config=allowed)(X), X)
    with pytest.raises(ParameterError, match="is for 2 cores, and the outer one 1"):
        nested(nki.jit(copy)[2])(X)
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    np.testing.assert_array_equal(nested(inner)(X), X)
    np.testing.assert_array_equal(nested(nki.jit(copy)[2])(X), X)


def test_settings_are_checked_and_what_is_not_published_says_so():
    with pytest.raises(ParameterError, match="dead_code_elim is True or False"):
        CompileConfig(dead_code_elim="yes")
    with pytest.raises(ParameterError, match="it is a CompileConfig"):
        nki.jit(copy, compile_config=True)
    with pytest.raises(UnsupportedError, match="do not name its members"):
        nki.compiler.AddressRotation.enabled  # noqa: B018
    with pytest.raises(UnsupportedError, match="do not name its members"):
        CompileConfig(address_rotation=True)
    with pytest.raises(UnknownNameError, match=r"nki.compiler.sbuf is not in `import nki`"):
        nki.compiler.sbuf  # noqa: B018


# -- cores ----------------------------------------------------------------------------------------


def cores_of(kernel, monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen = []

    @nki.jit
    def counting(x):
        seen.append(nl.num_programs())
        return copy(x)

    kernel(counting)(X)
    return seen[0]


@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
def test_a_launch_without_brackets_is_on_the_cores_of_the_environment(monkeypatch):
    def plain(kernel):
        return kernel

    assert cores_of(plain, monkeypatch) == 1
    assert cores_of(plain, monkeypatch, NEURON_LOGICAL_NC_CONFIG="2") == 2
    assert cores_of(lambda k: k[1], monkeypatch) == 1
    assert cores_of(plain, monkeypatch, NKISIM_NKI="0.6") == 1
    with pytest.raises(ParameterError, match="only supports LNC 1 or 2, but got 4"):
        cores_of(plain, monkeypatch, NEURON_LOGICAL_NC_CONFIG="4", NKISIM_NKI="0.7")


def test_a_graph_and_its_kernels_are_for_as_many_cores(monkeypatch):
    jax = pytest.importorskip("jax")
    kernel = nki.jit(copy)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    told = (
        r"NKI kernel 'copy' is configured with LNC=1, but neuronx-cc is using LNC=2 "
        r"\[NCC_EVRF066\]"
    )
    for call in (kernel[1], jax.jit(kernel[1])):
        with pytest.raises(KernelError, match=told) as found:
            call(jax.numpy.asarray(X))
        assert "NEURON_LOGICAL_NC_CONFIG=1" in found.value.fix
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG")
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1 --lnc=1")
    np.testing.assert_array_equal(jax.jit(kernel[1])(X), X)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    monkeypatch.setenv("NEURON_CC_FLAGS", "--lnc 2")
    with pytest.raises(KernelError, match="neuronx-cc is using LNC=2") as found:
        jax.jit(kernel)(X)
    assert "NEURON_CC_FLAGS" in found.value.fix
    monkeypatch.delenv("NEURON_CC_FLAGS")
    np.testing.assert_array_equal(jax.jit(kernel)(X), X)  # as the fix says


# -- types of 64 bits -----------------------------------------------------------------------------


def test_types_of_64_bits_are_moved_and_nothing_else(monkeypatch):
    wide = np.array([[2**40, -3, 7]], np.int64)
    np.testing.assert_array_equal(nki.jit(copy)(wide), wide)
    tile = np.array([[2**63 + 1]], np.uint64)
    np.testing.assert_array_equal(nki.jit(copy)(tile), tile)

    def added(x):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.tensor_scalar(tile, tile, nl.add, 1)
        return copy(tile)

    def narrowed(x):
        out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    for kernel in (added, narrowed):
        with pytest.raises(UnsupportedError, match="int64") as found:
            nki.simulate(kernel)(wide)
        assert "astype(np.int32)" in found.value.fix
    monkeypatch.setenv("NKISIM_NKI", "0.6")
    with pytest.raises(KernelError, match=r"use nl\.int32"):
        nki.jit(copy)(wide)


def test_the_wheel_of_0_6_has_no_compiler_module_names(old):
    assert importlib.import_module("nki.compiler") is nki.compiler
    with pytest.raises(ImportError, match=r"new in NKI 0\.7"):
        from nki.compiler import CompileConfig  # noqa: F401


def test_the_command_line_chooses_for_the_program(tmp_path, monkeypatch, capsys):
    from nkisim import __main__ as command

    program = tmp_path / "program.py"
    program.write_text("import nki\nprint('runs', nki.__version__)\n")
    monkeypatch.setenv("NKISIM_NKI", "0.7")
    monkeypatch.setattr(command, "reach", lambda: None)  # it changes the environment
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("sys.path", list(sys.path))
    for words, version in ((["--nki", "0.6"], "0.6.0"), (["--nki=0.7"], "0.7.0")):
        monkeypatch.setattr("sys.argv", ["nkisim", *words, str(program)])
        command.main()
        assert f"runs {version}" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["nkisim", "--nki", "0.5", str(program)])
    with pytest.raises(SystemExit):
        command.main()
    assert "invalid choice: '0.5'" in capsys.readouterr().err

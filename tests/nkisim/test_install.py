"""`nkisim.install()`: stands in where there is no SDK, steps aside where there is one."""

from __future__ import annotations

import importlib.util

import pytest


def write(folder, files):
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


@pytest.fixture
def sdk(tmp_path):
    """Packages laid out as the SDK's."""
    files = {
        "neuronxcc/__init__.py": "__version__ = '2.26.0+real'\n",
        "neuronxcc/nki/__init__.py": "SOURCE = 'SDK'\ndef jit(f): return f\n",
        "neuronxcc/nki/language.py": "SOURCE = 'SDK'\n",
    }
    return write(tmp_path / "sdk", files)


@pytest.fixture
def placeholder(tmp_path):
    """What PyPI has under these names: a package with nothing in it."""
    names = ("neuronxcc", "torch_neuronx", "jax_neuronx")
    text = "__version__ = '0.0.1'\n"
    return write(tmp_path / "pypi", {f"{name}/__init__.py": text for name in names})


def test_a_real_sdk_is_left_alone(run_python, sdk):
    done = run_python(
        """
        import sys
        import nkisim
        assert nkisim.sdk_installed()
        assert "neuronxcc" not in sys.modules  # asking imports nothing
        assert nkisim.install() is False
        import neuronxcc, neuronxcc.nki as nki, neuronxcc.nki.language as nl
        assert neuronxcc.__version__ == "2.26.0+real"
        assert nki.SOURCE == nl.SOURCE == "SDK"
        ours = "nkisim.frontends.neuronxcc.nki"
        assert not any(m.startswith(ours) for m in sys.modules), "nkisim was used"
        print("ok")
        """,
        path=(sdk,),
    )
    assert done.stdout == "ok\n"


@pytest.mark.parametrize("evidence", ["xla_impl", "nki_hop"])
def test_the_torch_neuronx_of_an_sdk_is_left_alone_unless_it_is_asked_for(
    run_python, tmp_path, evidence
):
    """That of SDK 2.33 has no xla_impl; its neuronx-cc may have no neuronxcc.nki."""
    files = {"torch_neuronx/__init__.py": "SOURCE = 'SDK'\n", f"torch_neuronx/{evidence}.py": ""}
    code = """
        import os, nkisim
        nkisim.install(in_place_of_sdk={asked})
        import torch_neuronx
        print(hasattr(torch_neuronx, "SOURCE"), os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD"))
        """
    path = (write(tmp_path, files),)
    assert run_python(code.format(asked=False), path=path).stdout == "True None\n"
    assert run_python(code.format(asked=True), path=path).stdout == "False 0\n"


STAND_IN = """
    import sys
    {before}
    import nkisim
    assert not nkisim.sdk_installed()
    assert nkisim.install() is True
    assert nkisim.install() is True  # once more changes nothing
    assert sum(type(f).__module__ == "nkisim.runtime.install" for f in sys.meta_path) == 1
    assert not nkisim.sdk_installed()

    import neuronxcc
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.typing as nt
    from neuronxcc.nki import compiler
    from neuronxcc.nki.language import affine_range
    import numpy as np
    import nkisim.frontends.neuronxcc.nki.language

    assert "nkisim" in neuronxcc.__version__
    assert nki.language is nl or nki.language.load is nl.load
    assert affine_range is nl.affine_range is nkisim.frontends.neuronxcc.nki.language.affine_range

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nisa.tensor_tensor(nl.load(x), nl.load(x), op=np.add))
        return out

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (kernel(x) == 2 * x).all()
    assert "load" in dir(nl) and nl.__name__ == "neuronxcc.nki.language"
    print("ok")
    """


def test_it_stands_in_where_there_is_nothing(run_python):
    assert run_python(STAND_IN.format(before="")).stdout == "ok\n"


@pytest.mark.parametrize(
    "before", ["", "import neuronxcc", "import neuronxcc, torch_neuronx, jax_neuronx"]
)
def test_an_empty_placeholder_is_no_sdk(run_python, placeholder, before):
    done = run_python(STAND_IN.format(before=before), path=(placeholder,))
    assert done.stdout == "ok\n"


def test_a_name_that_does_not_exist_says_so(run_python):
    done = run_python(
        """
        import nkisim
        nkisim.install()
        import neuronxcc.nki.language as nl
        try:
            nl.no_such_function
        except AttributeError as error:
            print(error)
        try:
            import neuronxcc.no_such_module
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert "no_such_function" in done.stdout
    assert "neuronxcc.no_such_module" in done.stdout


def test_importing_nkisim_installs_nothing(run_python):
    done = run_python(
        """
        import importlib.util, sys
        import nkisim
        print(importlib.util.find_spec("neuronxcc"))
        print(sorted({m.partition(".")[0] for m in sys.modules} & {"torch", "jax", "scipy"}))
        """
    )
    assert done.stdout == "None\n[]\n"


def test_the_submodules_that_kernels_import_from(run_python):
    run_python(
        """
        import nkisim
        nkisim.install()
        import neuronxcc.nki.isa as nisa
        import neuronxcc.nki.language as nl
        import neuronxcc.nki.language.constants as constants
        from neuronxcc.nki.isa.constants import dge_mode, oob_mode
        from neuronxcc.nki.language.constants import sizeinbytes
        assert (dge_mode, oob_mode) == (nisa.dge_mode, nisa.oob_mode)
        assert constants.sbuf_min_align == nl.constants.sbuf_min_align
        assert [sizeinbytes(t) for t in (nl.float32, nl.bfloat16, nl.float8_e4m3)] == [4, 2, 1]
        """
    )


def test_the_compilers_names_of_types():
    from neuronxcc.nki import language
    from neuronxcc.starfish.support.dtype import bfloat16, static_cast

    assert bfloat16 == language.bfloat16
    assert static_cast(1.01, bfloat16) == bfloat16(1.01) != 1.01


def test_types_that_reference_kernels_import_for_their_annotations():
    from neuronxcc.nki import language as nl
    from neuronxcc.nki.compiler.backends.neuron.indexing import TileIndex
    from neuronxcc.nki.compiler.backends.neuron.tensor import local_tile

    assert isinstance(nl.arange(4), TileIndex)
    assert isinstance(local_tile, type)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("import neuronxcc.nki.nccl", r"neuronxcc\.nki\.nccl .*nki\.collectives"),
        ("from neuronxcc.nki import nccl", r"neuronxcc\.nki\.nccl .*nki\.collectives"),
        ("from neuronxcc.nki.nccl import collective_permute", r"nki\.collectives"),
        ("from neuronxcc.nki.kernels.attention import flash_fwd", "nki-samples"),
        ("import neuronxcc.foo", r"neuronxcc\.foo .*use one of these modules"),
        ("import neuronxcc.nki.languge", r"neuronxcc\.nki\.languge .*nki\.language"),
        ("import nki.nccl", r"nki\.collectives"),
        ("from nki.language import arange", "slice with"),
        ("import torch_neuronx.distributed", r"torch_neuronx\.utils"),
    ],
)
def test_a_module_that_is_not_there_says_what_to_use(statement, says):
    with pytest.raises(ModuleNotFoundError, match=f"(?s){says}"):
        exec(statement, {})


def test_it_may_be_asked_whether_a_module_is_there():
    """As programs do that use one of several packages."""
    assert importlib.util.find_spec("neuronxcc.nki.nccl") is None
    assert importlib.util.find_spec("neuronxcc.nki.language") is not None
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("nkipy_of_nobody")

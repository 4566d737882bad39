"""Which backend ``import kernels`` picks, each time in a fresh process."""

from __future__ import annotations

import itertools
import textwrap

import pytest

import kernels

# Just enough of an SDK for `import kernels.add` to succeed.
FAKE_SDK = {
    "neuronxcc/__init__.py": "__version__ = '2.0.fake'\n",
    "neuronxcc/nki/__init__.py": "def jit(func=None, **kwargs):\n    return func\n",
    "neuronxcc/nki/language.py": "",
}


@pytest.fixture
def sdk(tmp_path):
    """A new folder to put on the path; call with the files it should hold."""
    numbers = itertools.count()

    def write(files):
        folder = tmp_path / f"sdk{next(numbers)}"  # bytecode of another one may look as new
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return folder

    return write


PRINT_BACKEND = """
    import sys
    import kernels.add
    simulator = sorted(name for name in sys.modules if name.split(".")[0] == "nkisim")
    print(kernels.backend, kernels.backend_version, len(simulator) > 0)
"""


def test_simulator_without_an_sdk(run_python):
    assert run_python(PRINT_BACKEND).stdout.split() == ["nkisim", kernels.backend_version, "True"]


def test_sdk_is_used_and_nothing_of_nkisim_is_imported(run_python, sdk):
    done = run_python(PRINT_BACKEND, path=(sdk(FAKE_SDK),))
    assert done.stdout.split() == ["neuronxcc", "2.0.fake", "False"]


@pytest.mark.parametrize(
    "text", ["", "raise RuntimeError('placeholder: install from elsewhere')"], ids=["empty", "loud"]
)
def test_a_placeholder_is_not_an_sdk(run_python, sdk, text):
    done = run_python(PRINT_BACKEND, path=(sdk({"neuronxcc/__init__.py": text}),))
    assert done.stdout.split()[0] == "nkisim"


def test_a_broken_sdk_is_an_error(run_python, sdk):
    broken = {**FAKE_SDK, "neuronxcc/nki/__init__.py": "import a_library_that_is_not_there"}
    done = run_python(PRINT_BACKEND, path=(sdk(broken),), check=False)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "the Neuron SDK is installed, but" in last
    assert "a_library_that_is_not_there" in last


def test_simulator_that_was_installed_before(run_python):
    code = """
        import nkisim
        nkisim.install()
        import neuronxcc.nki
        import kernels
        print(kernels.backend)
    """
    assert run_python(code).stdout.split() == ["nkisim"]


def test_the_simulator_is_asked_for_by_name_where_an_sdk_is_installed(run_python, sdk):
    path = (sdk(FAKE_SDK),)
    done = run_python(PRINT_BACKEND, path=path, env={"NKI_BACKEND": "nkisim"})
    assert done.stdout.split() == ["nkisim", kernels.backend_version, "True"]
    done = run_python(PRINT_BACKEND, path=path, env={"NKI_BACKEND": "cuda"}, check=False)
    assert done.returncode != 0
    assert "NKI_BACKEND='cuda'" in done.stderr.splitlines()[-1]


PRINT_DIALECT = """
    import kernels
    print(kernels.backend, kernels.dialect)
"""
NKI_OF_THE_SDK = {"nki/__init__.py": "", "nki/language.py": "", "nki/isa.py": ""}


def versioned(version):
    return {**FAKE_SDK, "neuronxcc/__init__.py": f"__version__ = '{version}'\n"}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, "nkisim neuronxcc"),
        ({"nki/__init__.py": "raise ImportError('placeholder')"}, "nkisim neuronxcc"),
        (versioned("2.23.6484.0"), "neuronxcc neuronxcc"),  # SDK 2.28.1
        ({**versioned("2.24.8799.0"), **NKI_OF_THE_SDK}, "neuronxcc neuronxcc"),  # 2.29.1
        ({**versioned("2.25.3371.0"), **NKI_OF_THE_SDK}, "neuronxcc nki"),  # 2.30.0
        (
            {"neuronxcc/__init__.py": "__version__ = '2.27.5334.0'", **NKI_OF_THE_SDK},
            "neuronxcc nki",  # 2.32 without the older dialect
        ),
    ],
    ids=["laptop", "placeholder", "2.28.1", "2.29.1", "2.30", "2.32"],
)
def test_operators_take_the_dialect_of_the_sdk(run_python, sdk, files, wanted):
    path = (sdk(files),) if files else ()
    assert run_python(PRINT_DIALECT, path=path).stdout.strip() == wanted


def test_the_simulator_brings_both_dialects_where_an_sdk_is_installed(run_python, sdk):
    path = (sdk({**versioned("2.27.5334.0"), **NKI_OF_THE_SDK}),)
    code = PRINT_DIALECT + "    import nki\n    print(nki.jit.__module__.split('.')[0])"
    done = run_python(code, path=path, env={"NKI_BACKEND": "nkisim", "NKI_DIALECT": "nki"})
    assert done.stdout.split() == ["nkisim", "nki", "nkisim"]


def test_the_dialect_can_be_asked_for(run_python, sdk):
    path = (sdk({**versioned("2.24.8799.0"), **NKI_OF_THE_SDK}),)
    done = run_python(PRINT_DIALECT, path=path, env={"NKI_DIALECT": "nki"})
    assert done.stdout.split() == ["neuronxcc", "nki"]
    for files in (FAKE_SDK, {**versioned("2.23.6484.0"), **NKI_OF_THE_SDK}):  # none; a beta
        done = run_python(
            PRINT_DIALECT, path=(sdk(files),), env={"NKI_DIALECT": "nki"}, check=False
        )
        assert "needs SDK 2.30 or later" in done.stderr.splitlines()[-1]
    path = (sdk({**versioned("2.25.3371.0"), **NKI_OF_THE_SDK}),)
    done = run_python(PRINT_DIALECT, path=path, env={"NKI_DIALECT": "neuronxcc"}, check=False)
    assert "SDK 2.29 was the last for neuronxcc.nki" in done.stderr.splitlines()[-1]
    done = run_python(PRINT_DIALECT, env={"NKI_DIALECT": "nki"})
    assert done.stdout.split() == ["nkisim", "nki"]
    done = run_python(PRINT_DIALECT, env={"NKI_DIALECT": "nki 0.6"}, check=False)
    assert done.returncode != 0
    assert "NKI_DIALECT='nki 0.6'" in done.stderr.splitlines()[-1]

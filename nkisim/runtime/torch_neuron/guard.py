"""Compiles and loads `guard.cpp`, which torch 2.9 needs for a device that is made in Python."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

_SOURCE = Path(__file__).with_name("guard.cpp")


class NoCompilerError(RuntimeError):
    """There is neither a C++ compiler nor a PyTorch that needs none."""


def load() -> None:
    """Load the guard into this process; compile it, once for each PyTorch (about 5 s).

    Raises:
        NoCompilerError: there is no compiler.
        RuntimeError: the compiler refuses the source; with what it said.
    """
    ctypes.CDLL(str(_library()))


def _library() -> Path:
    described = f"{torch.__version__}\0{torch.version.git_version}\0".encode()
    key = hashlib.sha256(described + _SOURCE.read_bytes()).hexdigest()[:16]
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(chosen) if chosen else Path.home() / ".cache" / "torch_extensions"
    library = root / "nkisim_neuron" / f"guard-{key}.so"
    if not library.exists():
        _compile(library)
    return library


def _compile(library: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "c++").split()[0])
    if compiler is None:
        raise NoCompilerError(
            f"PyTorch {torch.__version__} takes a device that is made in Python only with 40 lines "
            "of C++, and there is no C++ compiler "
            f"({os.environ.get('CXX', 'c++')!r} is not on PATH).\n"
            "  fix:  pip install 'torch>=2.13', which needs no compiler (torch_xla, which ends at "
            "2.9, is not used with `import nki`), or install one (Debian, Ubuntu: apt-get install "
            "g++; macOS: xcode-select --install)"
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(torch.__file__).parent
    # Under another name first: processes may compile at the same time, and one may be killed.
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        built = Path(work) / library.name
        done = subprocess.run(
            [
                *(compiler, "-std=c++17", "-O0", "-shared", "-fPIC", str(_SOURCE)),
                *(f"-I{folder / 'include'}", f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10"),
                *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",),
                *("-o", str(built)),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(
                f"{compiler} does not compile {_SOURCE} for PyTorch {torch.__version__}:\n"
                f"{done.stderr}"
            )
        os.replace(built, library)

"""Compiles custom operators with PyTorch's C++ extension machinery (ninja), cached by content.

A library is two shared objects: one with the shape functions, for the host, and one with the kernel
functions, compiled against stand-ins for the device's headers. A build's folder is named by a hash
of everything that goes into it, so that what is built is never built again, and never stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

_INCLUDE = Path(__file__).parent / "include"
# ffp-contract: the same rounding on every machine.
_DEVICE_FLAGS = ("-std=c++14", "-O2", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
_HOST_FLAGS = ("-std=c++17", "-O0", "-fvisibility=hidden")


class CompileError(RuntimeError):
    """A source does not compile. The message has all that the compiler said."""


class CompilerMissingError(RuntimeError):
    """This machine has no C++ compiler."""


def compiler() -> str | None:
    """The C++ compiler's path: $CXX, else c++. None when there is none."""
    return shutil.which(os.environ.get("CXX", "c++").split()[0])


def cache_root() -> Path:
    """Where builds are kept: in PyTorch's folder for extensions (TORCH_EXTENSIONS_DIR)."""
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(chosen) if chosen else Path.home() / ".cache" / "torch_extensions"
    return root / "nkisim_customop"


def fingerprint(
    kind: str, sources: Sequence[Path], include_paths: Sequence[Path], flags: Sequence[str]
) -> str:
    """A hash of what a build is made of: sources, their headers, flags, compiler, PyTorch.

    Args:
        kind: "host" or "device".
        sources: the files to compile.
        include_paths: more folders with headers.
        flags: more flags of the compiler.

    Returns:
        16 hexadecimal digits.

    Raises:
        FileNotFoundError: a source does not exist.
    """
    for source in sources:
        if not source.is_file():
            raise FileNotFoundError(f"there is no source file {source} to compile.")
    own = _HOST_FLAGS if kind == "host" else _DEVICE_FLAGS
    headers = _headers(kind, sources, include_paths, [*own, *flags])
    digest = hashlib.sha256()
    described = [kind, torch.__version__, sys.platform, _compiler_version(), *own, *flags]
    digest.update("\0".join(described).encode())
    for path in [*sources, *headers]:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _headers(
    kind: str, sources: Sequence[Path], include_paths: Sequence[Path], flags: Sequence[str]
) -> list[Path]:
    """The files that sources include, by the compiler's own list; but for those of the system and
    of PyTorch, which its version stands for."""
    command = compiler()
    if command is None:
        return []  # nothing is compiled
    folders = [f"-I{path}" for path in (_INCLUDE / kind, *include_paths)]
    # What is missing, as PyTorch's own headers are here, is listed and no error.
    listing = [command, "-MM", "-MG", *flags, *folders, *map(str, sources)]
    done = subprocess.run(listing, capture_output=True, text=True, check=False)
    rules = done.stdout.replace("\\\n", " ").splitlines()
    files = [Path(name) for rule in rules for name in _words(rule.partition(": ")[2])]
    return sorted({path for path in files if path.is_file()} - set(sources))


def _words(text: str) -> list[str]:
    """The names of files in a rule of make, in which a space within one is escaped."""
    return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\)\s+", text) if word]


def compile_library(
    kind: str,
    key: str,
    sources: Sequence[Path],
    *,
    include_paths: Sequence[Path] = (),
    flags: Sequence[str] = (),
    verbose: bool = False,
) -> Path:
    """Compile sources into a shared library, unless that was done before.

    Args:
        kind: "host" or "device": which headers and language version.
        key: names the build; everything in it must be in the key.
        sources: the files to compile.
        include_paths: more folders with headers.
        flags: more flags of the compiler.
        verbose: print ninja's progress.

    Returns:
        The library's path. A host library may have been loaded into this process already.

    Raises:
        CompilerMissingError: there is no compiler.
        CompileError: with the compiler's messages.
    """
    folder = cache_root() / f"{kind}-{key}"
    name = f"nkisim_{kind}_{key}"
    library, complete = folder / f"{name}.so", folder / "complete"
    if complete.exists() and library.exists():
        return library
    if compiler() is None:
        raise CompilerMissingError(
            f"there is no C++ compiler to compile {_names(sources)} with: "
            f"{os.environ.get('CXX', 'c++')!r} is not on PATH. Install one (Debian, Ubuntu: "
            "apt-get install g++; macOS: xcode-select --install), or name one in CXX."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "building"):
        if complete.exists() and library.exists():
            return library
        (folder / "lock").unlink(missing_ok=True)  # of a process that died while it built
        if verbose or sys.stderr.isatty():
            print(f"compiling {_names(sources)} ...", file=sys.stderr, flush=True)
        _build(kind, name, sources, folder, include_paths, flags, verbose)
        complete.touch()
    return library


def _build(
    kind: str,
    name: str,
    sources: Sequence[Path],
    folder: Path,
    include_paths: Sequence[Path],
    flags: Sequence[str],
    verbose: bool,
) -> None:
    # It logs a warning on machines with half a CUDA. None of this is for CUDA.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    from torch.utils import cpp_extension

    own = _HOST_FLAGS if kind == "host" else _DEVICE_FLAGS
    # Without it a kernel function that is missing is found when the library is loaded, if at all.
    no_undefined = [] if sys.platform == "darwin" else ["-Wl,--no-undefined"]
    with _ninja_on_path():
        try:
            cpp_extension.load(
                name=name,
                sources=[str(source) for source in sources],
                extra_cflags=[*own, *flags],
                extra_ldflags=[*no_undefined, "-pthread"],
                extra_include_paths=[str(path) for path in (_INCLUDE / kind, *include_paths)],
                build_directory=str(folder),
                with_cuda=False,
                is_python_module=False,
                verbose=verbose,
            )
        except RuntimeError as error:
            raise CompileError(f"{_names(sources)} did not compile.\n\n{error}") from None


@contextlib.contextmanager
def _ninja_on_path() -> Iterator[None]:
    """PyTorch looks for ninja on PATH, where it is not unless the environment is activated."""
    before = os.environ.get("PATH", "")
    with contextlib.suppress(ImportError):
        import ninja

        os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file. The system frees it when the process ends, however it ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiler_version() -> str:
    command = compiler()
    if command is None:
        return "none"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _names(sources: Sequence[Path]) -> str:
    return ", ".join(source.name for source in sources)

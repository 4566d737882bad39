"""Compiles XLA FFI handlers into a shared library, cached by content.

A library is named by a hash of everything that goes into it: sources, XLA's headers, the compiler,
its flags and the processor's instruction set. What is built is never built again, and never stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax.ffi

FOLDER = Path(__file__).parent
CPU_SOURCE = FOLDER / "cpu.cpp"

_HEADERS = ("*.h", "*.hpp")


class CompileError(RuntimeError):
    """A source does not compile. The message has all that the compiler said."""


class CompilerMissingError(RuntimeError):
    """This machine has no compiler for a source."""


def cpp_compiler() -> list[str] | None:
    """The command of the C++ compiler: $CXX, else c++. None when there is none."""
    command = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    path = shutil.which(command[0])
    return [path, *command[1:]] if path else None


def build_cpu(
    source: Path = CPU_SOURCE, *, flags: Sequence[str] = (), verbose: bool = False
) -> Path:
    """Compile handlers for the CPU of this machine, unless that was done before.

    Args:
        source: a C++17 file. It finds XLA's headers and those of this folder.
        flags: more flags of the compiler.
        verbose: say on standard error what is compiled, also when that is no terminal.

    Returns:
        The path of the shared library.

    Raises:
        FileNotFoundError: there is no such source.
        CompilerMissingError: there is no C++ compiler.
        CompileError: with the compiler's messages.
    """
    compiler = cpp_compiler()
    if compiler is None:
        raise CompilerMissingError(
            f"there is no C++ compiler to compile {source.name} with: "
            f"{os.environ.get('CXX') or 'c++'!r} is not on PATH. Install one (Debian, Ubuntu: "
            "apt-get install g++; macOS: xcode-select --install), or name one in CXX."
        )
    # On x86 the instruction set that all processors have is that of 2003.
    native = ["-march=native"] if platform.machine() in ("x86_64", "AMD64") else []
    command = [*compiler, *_SHARED, "-fPIC", "-pthread", *native]
    return _build(source, [*command, *_UNDEFINED, *flags], verbose)


_SHARED = ("-std=c++17", "-O3", "-shared")
# Without it a function that is missing is found when the library is loaded, if at all.
_UNDEFINED = () if sys.platform == "darwin" else ("-Wl,--no-undefined",)


def cache_folder() -> Path:
    """Where libraries are kept: nki-book in $XDG_CACHE_HOME, else in ~/.cache."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "nki-book"


def _build(source: Path, command: list[str], verbose: bool) -> Path:
    if not source.is_file():
        raise FileNotFoundError(f"there is no source file {source} to compile.")
    folder = cache_folder()
    library = folder / f"{source.stem}-{_fingerprint(source, command)}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(library.with_suffix(".lock")):
        if library.exists():
            return library
        if verbose or sys.stderr.isatty():
            tool = Path(command[0]).name
            print(f"compiling {source.name} with {tool}, once ...", file=sys.stderr, flush=True)
        # Under another name first: a compiler that is stopped leaves half a file.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / library.name
            includes = [f"-I{FOLDER}", "-isystem", jax.ffi.include_dir()]
            line = [*command, *includes, str(source), "-o", str(made)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stdout + done.stderr).strip()
                raise CompileError(
                    f"{source.name} does not compile.\n\n{shlex.join(line)}\n\n{said}"
                )
            made.replace(library)
    return library


def _fingerprint(source: Path, command: list[str]) -> str:
    """16 hexadecimal digits of a hash of what a library is made of."""
    digest = hashlib.sha256("\0".join([*command, sys.platform]).encode())
    digest.update(_compiler_version(command).encode())
    xla = Path(jax.ffi.include_dir())
    headers = {path for pattern in _HEADERS for path in FOLDER.glob(pattern)}
    headers |= {path for pattern in _HEADERS for path in xla.rglob(pattern)}
    for path in [source, *sorted(headers)]:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compiler_version(command: list[str]) -> str:
    """The compiler's version and, for a C++ compiler, the instructions it may use."""
    question = ["--version"]
    if "-march=native" in command:
        question = ["-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run([command[0], *question], capture_output=True, text=True, check=False)
    return done.stdout


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file. The system frees it when the process ends, however it ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

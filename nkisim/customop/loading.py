"""`load` and `load_library` of ``torch_neuronx.xla_impl.custom_op``.

As in the SDK, a built library is an archive under the name of a shared library. Here it is a zip
file of the two shared objects and of a description of the operators.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nkisim.customop import compiling
from nkisim.customop.operators import CustomOperator, register
from nkisim.customop.runtime import KernelFunction
from nkisim.errors import ParameterError, UnsupportedError

MAX_FUNCTIONS = 10
"""Operators of a library, at most (AWS, "Custom Operators API Reference Guide")."""

_FORMAT = "nkisim custom operators 1"
_DESCRIPTION = "library.json"
# Types of a schema -> those of the kernel function, and how it takes them from its arguments.
_PARAMETERS = {
    "Tensor": ("const torch::Tensor&", "tensors[{index}]"),
    "float": ("double", "arguments[{index}].real"),
    "int": ("int64_t", "arguments[{index}].integer"),
}
# Loading a library with PyTorch operators twice ends the process.
_shape_libraries: dict[str, ctypes.CDLL] = {}


def load(
    name: str,
    compute_srcs: str | Sequence[str],
    shape_srcs: str | Sequence[str],
    extra_cflags: Sequence[str] = (),
    extra_include_paths: Sequence[str] = (),
    build_directory: str | os.PathLike[str] | None = None,
    multicore: bool = False,
    verbose: bool = False,
) -> None:
    """Compile custom C++ operators, and make them callable as ``torch.ops.<library>.<operator>``.

    Args:
        name: of the library: ``lib<name>.so``.
        compute_srcs: C++ files with kernel functions.
        shape_srcs: C++ files with shape functions and NEURON_LIBRARY.
        extra_cflags: more flags of the compiler.
        extra_include_paths: more folders with headers.
        build_directory: where to write ``lib<name>.so``. Without it nothing is written but the
            cache.
        multicore: run on all processors, not one.
        verbose: print what is compiled, and how far it is.

    Raises:
        FileNotFoundError: a source or the build directory does not exist.
        nkisim.customop.compiling.CompilerMissingError: there is no C++ compiler.
        nkisim.customop.compiling.CompileError: with all that the compiler says.
        nkisim.errors.UnsupportedError: an operator with arguments that are not simulated.
    """
    archive = _build(
        name,
        _paths(compute_srcs),
        _paths(shape_srcs),
        list(extra_cflags),
        [Path(path).resolve() for path in extra_include_paths],
        multicore,
        verbose,
    )
    if build_directory is not None:
        folder = Path(build_directory)
        if not folder.is_dir():
            raise FileNotFoundError(f"build_directory {folder} is not a folder. Create it first.")
        _copy(archive, folder / f"lib{name}.so")
    load_library(str(archive))


def load_library(libname: str, verbose: bool = False) -> None:
    """Make the operators of a library that `load` wrote callable.

    Args:
        libname: path of ``lib<name>.so``.
        verbose: print what it holds.

    Raises:
        FileNotFoundError: there is no such file.
        nkisim.errors.ParameterError: the file is not such a library.
    """
    path = Path(libname)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no library {path}. Build it with custom_op.load(..., build_directory=...)."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            description = json.loads(archive.read(_DESCRIPTION))
            if description["format"] != _FORMAT or description["platform"] != sys.platform:
                raise KeyError("format")
            shapes, kernels = (_unpack(archive, description[part]) for part in ("host", "device"))
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise ParameterError(
            f"{path} is not a library that nkisim built on this kind of machine.",
            rule="a library built for a Neuron device runs there only, and the other way round.",
            fix="build it again from its sources with custom_op.load.",
        ) from None
    _load_shapes(description["shapes"], shapes)
    for entry in description["operators"]:
        if verbose:
            print(f"{entry['name']}{entry['schema']}: kernel function {entry['kernel']}")
        register(
            CustomOperator(
                name=entry["name"],
                schema=entry["schema"],
                shape=_shape_function(description["shapes"], entry["name"]),
                kernel=KernelFunction(
                    kernels, entry["symbol"], entry["name"], description["multicore"]
                ),
                kernel_name=entry["kernel"],
                digest=description["digest"],
            )
        )


def _build(
    name: str,
    compute: list[Path],
    shape: list[Path],
    flags: list[str],
    includes: list[Path],
    multicore: bool,
    verbose: bool,
) -> Path:
    """Compile what is not in the cache; return the archive."""
    options: dict[str, Any] = {"include_paths": includes, "verbose": verbose}
    shape_key = compiling.fingerprint("host", shape, includes, flags)
    shapes = f"nkisim_shapes_{shape_key}"
    host = compiling.compile_library(
        "host", shape_key, shape, flags=[*flags, f"-DNKISIM_SHAPES={shapes}"], **options
    )
    operators = _operators(shapes, _load_shapes(shapes, host))
    compute_key = compiling.fingerprint("device", compute, includes, flags)
    wrapper = _wrapper(operators)
    key = hashlib.sha256(f"{compute_key}\0{wrapper}".encode()).hexdigest()[:16]
    folder = compiling.cache_root() / f"device-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    generated = folder / "wrapper.cpp"
    if not generated.exists():
        _write(generated, wrapper.encode())
    try:
        device = compiling.compile_library(
            "device", key, [*compute, generated], flags=flags, **options
        )
    except compiling.CompileError as error:
        declared = "\n".join(f"  {_declaration(entry)}" for entry in operators)
        raise compiling.CompileError(
            f"{error}\n\nThe shape functions promise these kernel functions:\n{declared}"
        ) from None
    description = json.dumps(
        {
            "format": _FORMAT,
            "platform": sys.platform,
            "name": name,
            "digest": compute_key,
            "shapes": shapes,
            "host": host.name,
            "device": device.name,
            "multicore": multicore,
            "operators": operators,
        },
        indent=1,
    )
    described = hashlib.sha256(description.encode()).hexdigest()[:16]
    archive = folder / f"lib{name}-{described}.so"
    if archive.exists():
        return archive
    partial = archive.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(host, host.name)
        file.write(device, device.name)
        file.writestr(_DESCRIPTION, description)
    os.replace(partial, archive)
    return archive


def _load_shapes(shapes: str, library: Path) -> ctypes.CDLL:
    """Load shape functions, once a process."""
    if shapes not in _shape_libraries:
        loaded = ctypes.CDLL(str(library))
        loaded.nkisim_registered.restype = ctypes.c_char_p
        _shape_libraries[shapes] = loaded
    return _shape_libraries[shapes]


def _operators(shapes: str, library: ctypes.CDLL) -> list[dict[str, str]]:
    """What NEURON_LIBRARY registered: operators with their schemas and kernel functions."""
    lines = library.nkisim_registered().decode().splitlines()
    if not lines:
        raise ParameterError(
            "the shape sources register no operator.",
            rule="NEURON_LIBRARY(name, m) { m.def(operator, &shape_function, kernel_function); }",
            fix="add it to one of the shape sources.",
        )
    if len(lines) > MAX_FUNCTIONS:
        raise ParameterError(
            f"the shape sources register {len(lines)} operators.",
            rule=f"a library has at most {MAX_FUNCTIONS}.",
            fix="remove some; a model can have one library.",
        )
    found: list[Any] = []
    for line in lines:
        namespace, operator, kernel = line.split(" ")
        schema = torch._C._get_schema(f"{shapes}::{operator}", "")
        types = [str(argument.type) for argument in schema.arguments]
        results = [str(result.type) for result in schema.returns]
        if not set(types) <= set(_PARAMETERS) or results != ["Tensor"]:
            raise UnsupportedError(
                f"operator {namespace}::{operator} is {schema}.",
                rule="here, operators take torch::Tensor, double and int64_t, and return one "
                "torch::Tensor.",
                fix="pass a torch::Scalar as double or int64_t.",
            )
        named = ", ".join(f"{argument.type} {argument.name}" for argument in schema.arguments)
        found.append(
            {
                "name": f"{namespace}::{operator}",
                "schema": f"({named}) -> Tensor",
                "kernel": kernel,
                "symbol": f"nkisim_kernel_{len(found)}",
                "types": " ".join(types),
            }
        )
    return found


def _declaration(entry: dict[str, str]) -> str:
    parameters = ", ".join(_PARAMETERS[kind][0] for kind in entry["types"].split())
    return f"torch::Tensor {entry['kernel']}({parameters});"


def _wrapper(operators: list[dict[str, str]]) -> str:
    """C++ source with an entry point for each kernel function."""
    lines = [
        "#include <torch/torch.h>",
        '#include "nkisim/launch.hpp"',
        "",
        *dict.fromkeys(_declaration(entry) for entry in operators),
    ]
    for entry in operators:
        kinds = entry["types"].split()
        taken = [_PARAMETERS[kind][1].format(index=i) for i, kind in enumerate(kinds)]
        lines += [
            "",
            'extern "C" __attribute__((visibility("default")))',
            f"void {entry['symbol']}(uint32_t count, size_t tcm, const nkisim::Argument* given,",
            "    int number, const nkisim::Argument* result, uint8_t* written,",
            "    nkisim::Record* records) {",
            "  const auto kernel = [](const std::vector<torch::Tensor>& tensors,",
            "                         const nkisim::Argument* arguments) {",
            "    (void)tensors; (void)arguments;",
            f"    return {entry['kernel']}({', '.join(taken)});",
            "  };",
            "  nkisim::run(kernel, count, tcm, given, number, result, written, records);",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _shape_function(shapes: str, name: str) -> Any:
    return getattr(getattr(torch.ops, shapes), name.partition("::")[2])


def _unpack(archive: zipfile.ZipFile, name: str) -> Path:
    """A member as a file, in a folder named by its contents."""
    contents = archive.read(name)
    digest = hashlib.sha256(contents).hexdigest()[:16]
    path = compiling.cache_root() / f"unpacked-{digest}" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, contents)
    return path


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_bytes())


def _write(path: Path, contents: bytes) -> None:
    """Write a file at once, so that other processes see all of it or nothing."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(contents)
    os.replace(partial, path)


def _paths(sources: str | Sequence[str]) -> list[Path]:
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    return [Path(source).resolve() for source in listed]

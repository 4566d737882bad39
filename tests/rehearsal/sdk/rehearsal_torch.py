"""Kernels in the graphs of torch_xla: lazy, as on a device.

On an instance a kernel call puts a custom call into the graph that torch_xla records, and the graph
is compiled and run when somebody wants its values. torch_xla's CPU client knows no custom call and
has no Python function to make one known, but XLA, in the same library, has a registry of them. This
module finds that registry by the library's symbol table, and enters a function that runs the
simulator. (The library's version is pinned; another one without these symbols is an error.)
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import re
import struct
import sys
import traceback

import numpy as np
import torch_xla
from stand_in_nkisim.runtime.frameworks import torch as bridge
from stand_in_nkisim.runtime.frameworks.programs import find_program

TARGET = "AwsNeuronCustomNativeKernel"
_PLATFORM = b"Host"
_WITH_CONFIG = 3  # xla/service/hlo.proto: API_VERSION_STATUS_RETURNING_UNIFIED
_REGISTRY = "_ZN3xla24CustomCallTargetRegistry6GlobalEv"
_REGISTER = (
    "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcE"
    "SaIcEEEPvS8_"
)

# void function(void* out, const void** in, const char* opaque, size_t length, void* status)
_Function = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)


def _offsets(path: str, *names: str) -> list[int]:
    """Where a shared library (64-bit ELF) has functions, from its symbol table."""
    with open(path, "rb") as file:
        header = file.read(64)
        (at,) = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        file.seek(at)
        table = file.read(size * count)
        sections = [struct.unpack_from("<IIQQQQIIQQ", table, i * size) for i in range(count)]
        symbols = next(s for s in sections if s[1] == 2)  # SHT_SYMTAB
        strings = sections[symbols[6]]
        file.seek(strings[4])
        text = file.read(strings[5])
        file.seek(symbols[4])
        fields = [("name", "<u4"), ("skipped", "<u4"), ("value", "<u8"), ("size", "<u8")]
        entries = np.frombuffer(file.read(symbols[5]), np.dtype(fields))
    found = []
    for name in names:
        start = text.index(b"\0" + name.encode() + b"\0") + 1
        found.append(int(entries["value"][entries["name"] == start][0]))
    return found


def _loaded_at(path: str) -> int:
    # By its name: of a file with several links, the folder may be that of another link.
    name = path.rpartition("/")[2]
    with open("/proc/self/maps") as maps:  # the first mapping of a file begins at its start
        return int(next(line for line in maps if line.rstrip().endswith(name)).split("-")[0], 16)


class _String(ctypes.Structure):
    """std::string of libstdc++ that points to memory of ours."""

    _fields_ = [
        ("data", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("unused", ctypes.c_size_t),
    ]

    @classmethod
    def of(cls, text: bytes) -> _String:
        return cls(text, len(text), len(text), 0)


def _view(address: int, spec) -> np.ndarray:
    size = math.prod(spec.shape) * spec.dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, spec.dtype).reshape(spec.shape)


@_Function
def _run(out, inputs, opaque, length, status) -> None:
    try:
        program = find_program(ctypes.string_at(opaque, length))
        arrays = [
            _view(inputs[i], program.inputs[at]) for i, at in enumerate(program.needed_inputs)
        ]
        given = dict(zip(program.needed_inputs, arrays, strict=True))
        every = [
            given[i] if i in given else np.empty(spec.shape, spec.dtype)
            for i, spec in enumerate(program.inputs)
        ]
        # A kernel that writes an argument gets a copy: XLA's operands are constant.
        results = [
            every[program.aliases[i]].copy() if i in program.aliases else np.empty(s.shape, s.dtype)
            for i, s in enumerate(program.outputs)
        ]
        for i, source in program.aliases.items():
            every[source] = results[i]
        program.run(every, results)
        several = len(results) > 1
        buffers = (ctypes.c_void_p * len(results)).from_address(out) if several else [out]
        for buffer, result, spec in zip(buffers, results, program.outputs, strict=True):
            _view(buffer, spec)[...] = result
    except BaseException:  # nothing can be raised through XLA
        traceback.print_exc(file=sys.__stderr__)
        import os

        os._exit(70)


_original_call = torch_xla._XLAC._xla_custom_call
_original_text = torch_xla._XLAC._get_xla_tensors_hlo
_registered: set[str] = set()


def _custom_call(tensors, target, shapes, dtypes, effect, config, version, attributes):
    # torch_xla finds compiled graphs by the calls' targets and not by their configs, so that two
    # kernels for the same shapes would be one. Each gets a target of its own, which HLO text hides.
    own = f"{target}.{hashlib.sha256(config.encode()).hexdigest()[:16]}"
    if own not in _registered:
        _register(own)
    return _original_call(tensors, own, shapes, dtypes, effect, config, _WITH_CONFIG, attributes)


def _hlo(*args):
    return re.sub(rf"({TARGET})\.[0-9a-f]{{16}}", r"\1", _original_text(*args))


@functools.cache
def _functions():
    path = sys.modules["_XLAC"].__file__
    registry, register = (_loaded_at(path) + at for at in _offsets(path, _REGISTRY, _REGISTER))
    string = ctypes.POINTER(_String)
    of_register = ctypes.CFUNCTYPE(None, ctypes.c_void_p, string, ctypes.c_void_p, string)(register)
    return ctypes.CFUNCTYPE(ctypes.c_void_p)(registry)(), of_register


def _register(name: str) -> None:
    """Tell XLA which function a target is."""
    registry, register = _functions()
    target, platform = _String.of(name.encode()), _String.of(_PLATFORM)
    function = ctypes.cast(_run, ctypes.c_void_p)
    register(registry, ctypes.byref(target), function, ctypes.byref(platform))
    _registered.add(name)


torch_xla._XLAC._xla_custom_call = _custom_call
torch_xla._XLAC._get_xla_tensors_hlo = _hlo


def launch(kernel, args, kwargs):
    """Put a kernel of the simulator into the graph."""
    with bridge.lowering():
        return kernel(*args, **kwargs)

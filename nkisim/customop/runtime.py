"""Runs a compiled kernel function on the processors, and judges what they did.

The C++ side is ``include/device/nkisim/launch.hpp``; the structures here have its layout.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from nkisim.checking.settings import current_modes
from nkisim.customop import processors
from nkisim.customop.processors import MAX_DIM_SIZE, MAX_DIMS, ProcessorRun, Run
from nkisim.errors import (
    DTypeError,
    KernelError,
    Location,
    OutOfBoundsError,
    OutputError,
    RaceError,
    ShapeError,
    warn,
)

# PyTorch's own numbers of its dtypes (c10::ScalarType).
_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.bfloat16: 15,
}


class TcmError(KernelError, MemoryError):
    """A kernel function misuses TCM, the local memory of a GpSimd processor."""


class _Argument(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * MAX_DIMS),
        ("dim", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("real", ctypes.c_double),
        ("integer", ctypes.c_int64),
    )


class _Record(ctypes.Structure):
    _fields_ = (
        ("transfers", ctypes.c_uint64),
        ("bytes_read", ctypes.c_uint64),
        ("bytes_written", ctypes.c_uint64),
        ("tcm_peak", ctypes.c_uint64),
        ("tcm_left", ctypes.c_uint64),
        ("blocks_left", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("in_use_then", ctypes.c_uint64),
        ("used_dst", ctypes.c_uint64),
        ("check", ctypes.c_char * 16),
        ("message", ctypes.c_char * 512),
    )


class KernelFunction:
    """A compiled kernel function.

    Args:
        library: the shared library of the build.
        symbol: its entry in there.
        operator: the operator it belongs to, for messages.
        multicore: whether all processors run it, or one.
    """

    def __init__(self, library: Path, symbol: str, operator: str, multicore: bool) -> None:
        self.operator = operator
        self.count = processors.PROCESSORS if multicore else 1
        # ctypes lets other Python threads run during the call.
        self._entry = getattr(ctypes.CDLL(str(library)), symbol)
        self._entry.restype = None

    def run(self, arguments: Sequence[torch.Tensor | float | int], output: torch.Tensor) -> None:
        """Run it, and fill `output`.

        Args:
            arguments: contiguous CPU tensors, and numbers.
            output: a contiguous CPU tensor. Its contents are overwritten: with the results, and
                where the kernel writes none with NaN (integers: all bits set).

        Raises:
            ShapeError, DTypeError: a tensor that custom operators cannot take.
            KernelError: what the kernel did wrong; see `nkisim.CHECKS` ("race", "output", "tcm").
        """
        packed = (_Argument * max(1, len(arguments)))(*map(self._pack, arguments))
        result = self._pack(output)
        records = (_Record * self.count)()
        written = np.zeros(output.numel(), np.uint8)
        _set_all_bits(output)
        capacity = processors.tcm_bytes()
        self._entry(
            ctypes.c_uint32(self.count),
            ctypes.c_size_t(capacity),
            packed,
            ctypes.c_int(len(arguments)),
            ctypes.byref(result),
            written.ctypes.data_as(ctypes.c_void_p),
            records,
        )
        kept = list(records)
        processors.note(self._summary(written, kept))
        self._judge(kept, written.reshape(output.shape), capacity)

    def _pack(self, value: torch.Tensor | float | int) -> _Argument:
        if not isinstance(value, torch.Tensor):
            return _Argument(real=float(value), integer=int(value))
        if value.dtype not in _TYPES:
            raise _error(
                DTypeError,
                f"operator {self.operator} got a tensor of {value.dtype}.",
                rule=f"custom C++ operators take {', '.join(str(dtype) for dtype in _TYPES)}.",
                fix="convert the tensor with .to(dtype).",
            )
        if value.dim() > MAX_DIMS or any(size > MAX_DIM_SIZE for size in value.shape):
            raise _error(
                ShapeError,
                f"operator {self.operator} got a tensor of shape {tuple(value.shape)}.",
                rule=f"tensors of custom C++ operators have up to {MAX_DIMS} dimensions of up to "
                f"{MAX_DIM_SIZE} elements.",
                fix="reshape the tensor, or call the operator on parts of it.",
            )
        sizes = (ctypes.c_int64 * MAX_DIMS)(*value.shape)
        return _Argument(
            data=value.data_ptr(), sizes=sizes, dim=value.dim(), type=_TYPES[value.dtype]
        )

    def _summary(self, written: np.ndarray, records: Sequence[_Record]) -> Run:
        shares = [int(np.count_nonzero(written & (1 << i))) for i in range(self.count)]
        unwritten = int(np.count_nonzero(written == 0))
        contested = int(np.count_nonzero(_several(written)))
        each = tuple(
            ProcessorRun(
                id=i,
                transfers=entry.transfers,
                bytes_read=entry.bytes_read,
                bytes_written=entry.bytes_written,
                elements_written=share,
                tcm_peak=entry.tcm_peak,
                tcm_left=entry.tcm_left,
            )
            for i, (entry, share) in enumerate(zip(records, shares, strict=True))
        )
        return Run(self.operator, written.size, unwritten, contested, each)

    def _judge(self, records: Sequence[_Record], written: np.ndarray, capacity: int) -> None:
        for i, entry in enumerate(records):
            if entry.message:
                raise self._fault(i, entry.check.decode(), entry.message.decode(errors="replace"))
        modes = current_modes()
        findings = {
            "race": self._race(written),
            "output": self._unwritten(written, records, capacity),
            "tcm": self._leak(records),
        }
        for check, error in findings.items():
            if error is not None and modes[check] == "error":
                raise error
            if error is not None and modes[check] == "warn":
                warn(error)
        peak = max(entry.tcm_peak for entry in records)
        if modes["tcm"] != "off" and peak > processors.DOCUMENTED_POOL_BYTES:
            warn(self._large(peak, capacity))

    def _fault(self, processor: int, check: str, message: str) -> KernelError:
        problem = f"operator {self.operator}, processor {processor}: {message}."
        if check == "bounds":
            return _error(
                OutOfBoundsError,
                problem,
                rule="offsets are in elements of the flattened tensor, and stay inside of it.",
                fix="check the offset: rows times elements in a row, not rows.",
            )
        if check == "tcm":
            return _error(
                TcmError,
                problem,
                rule="a TCM buffer comes from tcm_malloc, holds as many bytes as were asked for, "
                "and is freed once.",
                fix="check the result of tcm_malloc for null, and the size of the buffer.",
            )
        if check == "dtype":
            return _error(
                DTypeError,
                problem,
                rule="the T of an accessor is the C++ type of the tensor's elements.",
                fix="use float for torch.float32, or convert the tensor in Python.",
            )
        if check == "race":
            return _error(
                RaceError,
                problem,
                rule="element and stream accessors work with multicore=False only.",
                fix="use tcm_accessor(), or load the library with multicore=False.",
            )
        if check == "output":
            return _error(
                OutputError,
                problem,
                rule="kernel function and shape function agree on the output.",
                fix="correct the shape function, or what the kernel function returns.",
            )
        return _error(
            KernelError,
            f"operator {self.operator}, processor {processor} ended in a C++ exception: {message}.",
            rule="a kernel function returns its output tensor.",
            fix="check arguments in the shape function: it runs on the host, where an exception "
            "reaches Python.",
        )

    def _race(self, written: np.ndarray) -> KernelError | None:
        several = _several(written)
        count = int(np.count_nonzero(several))
        if not count:
            return None
        where = _first(several)
        who = [str(i) for i in range(self.count) if written[where] & (1 << i)]
        return _error(
            RaceError,
            f"operator {self.operator}: {count} of {written.size} elements of the output are "
            f"written by several processors. The first is element {_index(where)}, by processors "
            f"{_and(who)}.",
            rule="processors are not synchronised: each writes elements that no other one writes.",
            fix="check how the offset depends on get_cpu_id(). Offsets count elements.",
        )

    def _unwritten(
        self, written: np.ndarray, records: Sequence[_Record], capacity: int
    ) -> KernelError | None:
        missing = written == 0
        count = int(np.count_nonzero(missing))
        if not count:
            return None
        problem = (
            f"operator {self.operator}: {count} of {written.size} elements of the output were not "
            f"written, from element {_index(_first(missing))} on."
        )
        fix = (
            "cover all elements, also when their number does not divide by get_cpu_count(), and "
            "write to get_dst_tensor()."
        )
        refused = [i for i, entry in enumerate(records) if entry.refused]
        if refused:
            entry = records[refused[0]]
            problem += (
                f" tcm_malloc({entry.refused}) returned null in {len(refused)} of {len(records)} "
                f"processors: {entry.in_use_then} of the {capacity} bytes of TCM were in use."
            )
            fix = "use smaller buffers: work on a part of a row at a time."
        return _error(OutputError, problem, rule="what is not written is undefined.", fix=fix)

    def _large(self, peak: int, capacity: int) -> KernelError:
        pool = processors.DOCUMENTED_POOL_BYTES
        return _error(
            TcmError,
            f"operator {self.operator} takes {peak} bytes of the {capacity} bytes of TCM.",
            rule=f"AWS documents a pool of {pool} bytes for tcm_malloc: on a device it may return "
            "null for the rest.",
            fix="use smaller buffers, or set NKISIM_TCM_BYTES="
            f"{pool} to see what the operator does then.",
        )

    def _leak(self, records: Sequence[_Record]) -> KernelError | None:
        leaky = [i for i, entry in enumerate(records) if entry.blocks_left]
        if not leaky:
            return None
        entry = records[leaky[0]]
        return _error(
            TcmError,
            f"operator {self.operator}: {len(leaky)} of {len(records)} processors returned with "
            f"TCM that they had not freed. Processor {leaky[0]} keeps {entry.tcm_left} bytes in "
            f"{entry.blocks_left} buffer{'s' * (entry.blocks_left > 1)}.",
            rule="what tcm_malloc gives is given back with tcm_free.",
            fix="free every buffer on every way out of the kernel function.",
        )


def _error(kind: type[KernelError], problem: str, *, rule: str, fix: str) -> KernelError:
    return kind(problem, rule=rule, fix=fix, location=_caller())


def _caller() -> Location | None:
    """The line that called the operator: the innermost one outside of PyTorch and nkisim."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("torch", "torch_xla", "nkisim"):
            return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def _several(written: np.ndarray) -> np.ndarray:
    """Where more than one bit is set."""
    return written & (written - np.uint8(1)) * (written > 0) != 0


def _first(where: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(np.argmax(where), where.shape))


def _index(where: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, where))}]"


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _set_all_bits(tensor: torch.Tensor) -> None:
    if tensor.numel():
        ctypes.memset(tensor.data_ptr(), 0xFF, tensor.numel() * tensor.element_size())

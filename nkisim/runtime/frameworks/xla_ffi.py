"""The XLA custom-call target ``AwsNeuronCustomNativeKernel`` for XLA's CPU runtime.

XLA calls an external function through its typed foreign function interface (FFI), a C interface
declared in ``xla/ffi/api/c_api.h``; jaxlib ships that header in ``jax.ffi.include_dir()``. The
interface is small, so this module speaks it with :mod:`ctypes` and needs no compiled extension.
The handler reads the call's ``config`` attribute, finds the traced program it names, and runs the
program on NumPy views of XLA's own buffers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import math
import re
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from nkisim.errors import KernelError
from nkisim.frontends.nki.ranks import Abandoned, on_device
from nkisim.ir.dtypes import poison
from nkisim.numerics.program import Program
from nkisim.runtime.by_data import ProgramByData
from nkisim.runtime.frameworks.programs import ConfigError, UnknownProgramError, find_program

TARGET = "AwsNeuronCustomNativeKernel"
"""Name of the custom-call target that the Neuron compiler gives a NKI kernel."""

# --- xla/ffi/api/c_api.h, major version 0 ---------------------------------------------------------
# Field names follow the header. Every struct begins with its own size and a list of extensions.
# XLA only appends fields within a major version, so a prefix of a struct is enough.

_API_MAJOR = 0
_EXTENSION_METADATA = 1  # XLA_FFI_Extension_Metadata
_ATTR_STRING = 4  # XLA_FFI_AttrType_STRING
# XLA_FFI_Error_Code
_INVALID_ARGUMENT = 3
_FAILED_PRECONDITION = 9
_INTERNAL = 13


class _ExtensionBase(ctypes.Structure):  # XLA_FFI_Extension_Base
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
    ]


class _ApiVersion(ctypes.Structure):  # XLA_FFI_Api_Version
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("major_version", ctypes.c_int),
        ("minor_version", ctypes.c_int),
    ]


class _Metadata(ctypes.Structure):  # XLA_FFI_Metadata
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("api_version", _ApiVersion),
        ("traits", ctypes.c_uint32),
    ]


class _MetadataExtension(ctypes.Structure):  # XLA_FFI_Metadata_Extension
    _fields_ = [("extension_base", _ExtensionBase), ("metadata", ctypes.POINTER(_Metadata))]


class _ByteSpan(ctypes.Structure):  # XLA_FFI_ByteSpan
    _fields_ = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Buffer(ctypes.Structure):  # XLA_FFI_Buffer, dense and row-major
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Buffers(ctypes.Structure):  # XLA_FFI_Args and XLA_FFI_Rets, which have one layout
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Attrs(ctypes.Structure):  # XLA_FFI_Attrs
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.POINTER(ctypes.POINTER(_ByteSpan))),
        ("attrs", ctypes.POINTER(ctypes.c_void_p)),
    ]


class _ErrorCreateArgs(ctypes.Structure):  # XLA_FFI_Error_Create_Args
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("errc", ctypes.c_int),
    ]


class _RunIdArgs(ctypes.Structure):  # XLA_FFI_RunId_Get_Args
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
        ("run_id", ctypes.c_int64),
    ]


class _DeviceOrdinalArgs(ctypes.Structure):  # XLA_FFI_DeviceOrdinal_Get_Args
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
        ("device_ordinal", ctypes.c_int32),
    ]


class _Api(ctypes.Structure):  # XLA_FFI_Api
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("api_version", _ApiVersion),
        ("internal_api", ctypes.c_void_p),
        ("error_create", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorCreateArgs))),
        ("functions", ctypes.c_void_p * 15),  # from Error_GetMessage to Future_SetError
        ("run_id", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_RunIdArgs))),
        ("device", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_DeviceOrdinalArgs))),
    ]


class _CallFrame(ctypes.Structure):  # XLA_FFI_CallFrame
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.POINTER(_ExtensionBase)),
        ("api", ctypes.POINTER(_Api)),
        ("ctx", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", _Buffers),
        ("rets", _Buffers),
        ("attrs", _Attrs),
    ]


_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_CallFrame))

# XLA_FFI_DataType, for the element types that NKI and XLA share.
_DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.bool_),  # PRED
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.uint8),
    7: np.dtype(np.uint16),
    8: np.dtype(np.uint32),
    9: np.dtype(np.uint64),
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    16: np.dtype(ml_dtypes.bfloat16),
    19: np.dtype(ml_dtypes.float8_e5m2),
    28: np.dtype(ml_dtypes.float8_e4m3),
}

# --- the handler ----------------------------------------------------------------------------------


class CustomCallError(RuntimeError):
    """XLA asks this target for something it cannot do. Has nothing to do with the kernel's code."""


def _view(buffer: _Buffer) -> np.ndarray:
    """A NumPy array over an XLA buffer. It owns nothing and dies with the call."""
    dtype = _DTYPES.get(buffer.dtype)
    if dtype is None:
        raise CustomCallError(
            f"XLA passes a buffer of XLA_FFI_DataType {buffer.dtype} to a NKI kernel. "
            f"Kernels take {', '.join(str(d) for d in _DTYPES.values())}."
        )
    shape = tuple(buffer.dims[: buffer.rank]) if buffer.rank else ()
    size = math.prod(shape)
    if size == 0:  # XLA gives such a buffer no address
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * (size * dtype.itemsize)).from_address(buffer.data)
    return np.frombuffer(memory, dtype).reshape(shape)


def _views(buffers: _Buffers) -> list[np.ndarray]:
    return [_view(buffers.buffers[i].contents) for i in range(buffers.size)]


def _string_attribute(attrs: _Attrs, name: str) -> bytes:
    for i in range(attrs.size):
        span = attrs.names[i].contents
        if ctypes.string_at(span.ptr, span.len).decode() != name:
            continue
        if attrs.types[i] != _ATTR_STRING:
            break
        value = ctypes.cast(attrs.attrs[i], ctypes.POINTER(_ByteSpan)).contents
        return ctypes.string_at(value.ptr, value.len)
    raise CustomCallError(f"this {TARGET} call has no string attribute `{name}`.")


def execute(frame: _CallFrame) -> None:
    """Run the program that a call names, on XLA's own buffers."""
    program = find_program(_string_attribute(frame.attrs, "config"))
    inputs, outputs = _views(frame.args), _views(frame.rets)
    for array in inputs:
        array.flags.writeable = False
    inputs = _with_output_arguments(program, inputs, outputs)
    if isinstance(program, ProgramByData):
        run, device = _place(frame)
        on_device(run, device, lambda: program.run(inputs, outputs))
    else:
        program.run(inputs, outputs)


def _place(frame: _CallFrame) -> tuple[int, int]:
    """Number of the computation that a call is part of, and of the device that it runs on.

    Raises:
        CustomCallError: the installed jaxlib does not tell.
    """
    api = frame.api.contents
    if api.struct_size < _Api.device.offset + _Api.device.size:
        raise CustomCallError("jaxlib is too old. Install the version that requirements.txt pins.")
    run = _RunIdArgs(ctypes.sizeof(_RunIdArgs), None, frame.ctx, 0)
    device = _DeviceOrdinalArgs(ctypes.sizeof(_DeviceOrdinalArgs), None, frame.ctx, 0)
    if api.run_id(ctypes.byref(run)) or api.device(ctypes.byref(device)):
        raise CustomCallError("XLA does not tell which device a kernel runs on.")
    return run.run_id, device.device_ordinal


def _with_output_arguments(
    program: Program, inputs: list[np.ndarray], outputs: list[np.ndarray]
) -> list[np.ndarray]:
    """Insert the arguments a kernel only writes, which XLA does not pass as operands.

    A kernel of the old style takes its outputs as arguments. ``nki_call`` gives XLA only the
    inputs, so the buffer of such an argument is the buffer of the result it becomes.
    """
    if len(inputs) == len(program.inputs):
        return inputs
    by_input = {i: outputs[o] for o, i in program.aliases.items()}
    for array in by_input.values():
        array.fill(poison(array.dtype))  # XLA's memory is not initialised
    given = iter(inputs)
    return [by_input[i] if i in by_input else next(given) for i in range(len(program.inputs))]


@functools.cache
def _api_version() -> tuple[int, int]:
    """The (major, minor) version of the interface that the installed jaxlib speaks.

    XLA refuses a handler that names another minor version, although minor versions only append
    fields, none of which is read here. So the answer comes from the header jaxlib ships.

    Raises:
        CustomCallError: the header is missing or of another major version.
    """
    import jax

    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text()))
        major, minor = int(found["MAJOR"]), int(found["MINOR"])
    except (OSError, KeyError) as error:
        raise CustomCallError(
            f"cannot read the version of XLA's foreign function interface from {header}. "
            "Reinstall jaxlib, which ships this file."
        ) from error
    if major != _API_MAJOR:
        raise CustomCallError(
            f"jaxlib speaks version {major}.{minor} of XLA's foreign function interface, nkisim "
            f"version {_API_MAJOR}. Install the jax version that requirements.txt pins."
        )
    return major, minor


def _describe_version(frame: _CallFrame) -> None:
    """Answer XLA's question at registration: which version of the interface is this?"""
    extension = ctypes.cast(frame.extension_start, ctypes.POINTER(_MetadataExtension))
    version = extension.contents.metadata.contents.api_version
    version.major_version, version.minor_version = _api_version()


def _error(frame: _CallFrame, code: int, message: str) -> int:
    args = _ErrorCreateArgs(
        ctypes.sizeof(_ErrorCreateArgs), None, message.encode("utf-8", "replace"), code
    )
    return frame.api.contents.error_create(ctypes.byref(args))


def handle(pointer: Any) -> int | None:
    """Entry point for XLA, on any of its threads; ctypes takes the GIL."""
    frame = pointer.contents
    extension = frame.extension_start
    if extension and extension.contents.type == _EXTENSION_METADATA:
        _describe_version(frame)
        return None
    # No exception may cross C frames: ctypes would print it and carry on.
    thread = threading.get_ident()
    _inside.add(thread)
    _entered_again.settle(thread)
    try:
        execute(frame)
    except (CustomCallError, ConfigError, KernelError, Abandoned) as error:
        return _error(frame, _INVALID_ARGUMENT, str(error))
    except UnknownProgramError as error:
        return _error(frame, _FAILED_PRECONDITION, str(error))
    except Exception:
        return _error(frame, _INTERNAL, traceback.format_exc())
    except BaseException as error:
        if sys._getframe().f_back is None:  # a thread of XLA's own, in which nobody waits
            return _error(frame, _INTERNAL, traceback.format_exc())
        return _Last.behind(error)
    finally:
        _inside.discard(thread)
        _left[0] = time.monotonic()
    return None


# With one argument more, which is ignored: what a weak reference calls its function with.
_set_pending = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
_set_pending.argtypes = [ctypes.c_ulong, ctypes.py_object, ctypes.py_object]
_pending: dict[int, weakref.ref[_Held]] = {}  # by thread


class _Held:
    """A token that lives as long as the result of a function: its weak reference tells the end."""


class _Last(int):
    """The result, 0, of a function that XLA calls and that ends with an interrupt.

    XLA would make an ordinary error of the interrupt, which `except Exception` in a training loop
    takes. So it gets none: the exception is pending in the thread once the result has gone, when
    the function is behind, and is raised at the next step of Python, which is the return of the
    call of JAX. What that would give, and has not been computed, reaches nobody.

    Attributes:
        held: goes with the result, and tells so.
    """

    held: _Held

    @classmethod
    def behind(cls, error: BaseException) -> _Last:
        """A result behind which an exception like `error` is raised in this thread."""
        kind, given = type(error), error.args

        def init(self: BaseException) -> None:
            self.args = given
            if isinstance(self, SystemExit):
                code: Any = given[0] if len(given) == 1 else given
                self.code = code

        if given:
            kind = type(kind.__name__, (kind,), {"__init__": init, "__module__": kind.__module__})
        thread = threading.get_ident()
        result = cls(0)
        result.held = _Held()
        _pending[thread] = weakref.ref(result.held, functools.partial(_set_pending, thread, kind))
        if sys.unraisablehook is not _entered_again:
            _entered_again.hook, sys.unraisablehook = sys.unraisablehook, _entered_again
        return result


class _EnteredAgain:
    """Takes the place of sys.unraisablehook while an interrupt is pending: the next kernel of the
    same computation is the next step of Python, out of which no exception goes. It stays pending.

    Attributes:
        hook: what it takes the place of.
    """

    hook: Callable[[Any], object]

    def settle(self, thread: int) -> None:
        """A kernel begins in this thread: an interrupt of one before it has been raised."""
        if _pending.pop(thread, None) and not _pending and sys.unraisablehook is self:
            sys.unraisablehook = self.hook

    def __call__(self, told: Any) -> _Last | None:
        if told.object is handle and threading.get_ident() in _pending:
            return _Last.behind(told.exc_value)
        self.hook(told)
        return None


_entered_again = _EnteredAgain()
_inside: set[int] = set()  # threads of XLA that run a kernel
_left = [0.0]  # when the last of them was done, in seconds
_QUIET = 0.3  # seconds without a kernel after which none is taken to be on its way

_handler = _Handler(handle)  # the C function; XLA keeps its address, so it must stay alive


_registration = threading.Lock()
_registered = False


def register() -> None:
    """Register the handler with JAX for the platform ``cpu``. Later calls do nothing."""
    global _registered
    with _registration:
        if _registered:
            return
        import jax

        _api_version()  # raise here, where the caller sees it, not inside XLA
        jax.ffi.register_ffi_target(
            TARGET, jax.ffi.pycapsule(_handler), platform="cpu", api_version=1
        )
        # Handlers run last registered first, so this comes before JAX's own.
        atexit.register(_finish)
        _registered = True


def _finish() -> None:
    """Wait for what is still being computed: the arrays there are, and kernels without one.

    JAX computes in the background. A thread of XLA that enters a kernel while Python shuts down
    is ended by Python, and XLA's thread pool then waits for it forever. Of a replicated result
    JAX reads one device's copy, so other devices may still be at it when the array is gone.
    """
    import jax

    for array in jax.live_arrays():
        # One that failed has no value to wait for, and exit is too late to report it.
        with contextlib.suppress(Exception):
            array.block_until_ready()
    while _inside or time.monotonic() - _left[0] < _QUIET:
        time.sleep(_QUIET / 10)

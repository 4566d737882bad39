"""The floating-point environment that kernels run in: that of C, whatever the caller's is.

Each thread of a processor has a rounding mode, and a switch that flushes denormal numbers to zero:
XLA's CPU runtime turns it on around custom calls, `torch.set_flush_denormal` in the thread that
calls it. NumPy obeys both. A kernel gives one result for one data: it rounds to nearest, and
denormal numbers are numbers. AWS's documentation says nothing about what the engines of a
NeuronCore make of these.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

# At least of the size of fenv_t: 32 bytes of glibc on x86-64, 8 to 16 elsewhere.
_Buffer = ctypes.c_char * 64


class DefaultEnvironment:
    """A context in which the calling thread has the environment that C programs start with; behind
    it, the thread has the one that it had.

    Threads of BLAS that are started inside inherit it. Those started before keep that of the
    thread that loaded NumPy.
    """

    __slots__ = ("_before", "_put")

    def __enter__(self) -> None:
        get, self._put, default = _functions()
        self._before = _Buffer()
        get(self._before)
        self._put(default)

    def __exit__(self, *error: object) -> None:
        self._put(self._before)


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """`fegetenv` and `fesetenv` of the C library, and what it calls FE_DFL_ENV: on Linux, glibc and
    musl, an address of -1 on x86-64 and AArch64; on macOS, an object."""
    library = ctypes.PyDLL(None)
    if not hasattr(library, "fesetenv"):
        library = ctypes.PyDLL("libm.so.6")
    get, put = library.fegetenv, library.fesetenv
    get.argtypes = put.argtypes = [ctypes.c_void_p]
    if sys.platform == "darwin":
        default = ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV"))
    else:
        default = ctypes.c_void_p(-1)
    return get, put, default

"""What `import neuronxcc.nki as nki` gives when nkisim stands in for the SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import UnsupportedError
from nkisim.kernel import as_kernel
from nkisim.nki import compiler, isa, language, typing
from nkisim.tensor import Tensor as tensor

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]


def _decorator(mode: str, func: Callable | None) -> Any:
    if func is None:
        return lambda f: as_kernel(f, mode)
    return as_kernel(func, mode)


def jit(func: Callable | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a Python function an NKI kernel: `@nki.jit` or `@nki.jit(mode=...)`.

    Args:
        func: the kernel function.
        mode: "auto" takes the framework of the arguments. The other documented modes are accepted
            and behave the same here, since every one runs on the simulator.
        **kwargs: compiler options of the SDK; ignored, as there is no compiler.

    Returns:
        A Kernel: `kernel(*args)` or, on a launch grid, `kernel[grid](*args)`.

    Raises:
        ValueError: no such mode.
    """
    return _decorator(mode, func)


def trace(func: Callable | None = None, **kwargs: Any) -> Any:
    """Make a Python function an NKI kernel that other kernels may call (`mode="trace"`)."""
    return _decorator("trace", func)


def baremetal(kernel: Callable | None = None, **kwargs: Any) -> Any:
    """Run a kernel without a framework: NumPy arrays in and out.

    On hardware this compiles to a NEFF and runs it; the options that name its files have no
    meaning here and are ignored.
    """
    return _decorator("baremetal", kernel)


def simulate_kernel(kernel: Callable, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on the CPU: NumPy arrays in and out.

    Args:
        kernel: a function, a kernel, or a kernel bound to a grid (`kernel[2, 2]`).
        *args, **kwargs: its arguments.
    """
    return as_kernel(kernel, "simulation")(*args, **kwargs)


def _no_latency(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"nki.{name} reports latencies of a NeuronCore, and there is none here",
        rule="nkisim has no cost model yet, and does not pass host time off as device time",
        fix="use nki.simulate_kernel for values, or run on an inf2 or trn1 instance",
    )


def benchmark(kernel: Callable | None = None, **kwargs: Any) -> Any:
    """Device latency of a kernel. Not available on a CPU: raises UnsupportedError."""
    raise _no_latency("benchmark")


def profile(func: Callable | None = None, **kwargs: Any) -> Any:
    """Device profile of a kernel. Not available on a CPU: raises UnsupportedError."""
    raise _no_latency("profile")


def __getattr__(name: str) -> Any:
    if name == "FrameworkKernel":  # imported late: `import nkisim` stays free of the bridges
        from nkisim.frameworks.base import FrameworkKernel

        return FrameworkKernel
    raise AttributeError(f"module 'nki' has no attribute {name!r}")

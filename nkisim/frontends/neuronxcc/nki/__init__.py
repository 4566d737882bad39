"""What `import neuronxcc.nki as nki` gives when nkisim stands in for the SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.checking import simulated
from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc import names
from nkisim.frontends.neuronxcc.nki import compiler, isa, language, typing
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor as tensor
from nkisim.machine.target import PLATFORMS
from nkisim.runtime import frameworks
from nkisim.runtime.kernel import as_kernel
from nkisim.runtime.measure import baremetal as run_baremetal
from nkisim.runtime.measure import benchmark, check_files, check_options
from nkisim.runtime.measure import profile_decorator as profile
from nkisim.trace.arguments import leaves

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
            and behave the same here, since every one runs on the simulator; but "simulation" does
            as the SDK's simulator does: bf16 and fp8 tiles on chip keep fp32 precision (numbers
            differ from hardware's); a returned on-chip tile is copied out, a tile that masks
            filled in part is stored, and dropout keeps all, each with a warning.
        **kwargs: platform_target="trn1", "inf2" or "trn2" chooses the NeuronCore generation, unless
            `NEURON_PLATFORM_TARGET_OVERRIDE` or `--target` in `NEURON_CC_FLAGS` does.
            Other compiler options of the SDK are ignored, as there is no compiler.

    Returns:
        A Kernel: `kernel(*args)` or, on a launch grid, `kernel[grid](*args)`.

    Raises:
        ValueError: no such mode.
    """
    target = kwargs.get("platform_target")
    if target is None:
        return _decorator(mode, func)
    if target not in PLATFORMS:
        raise ParameterError(
            f"nki.jit(platform_target={target!r})",
            rule="kernels are compiled for " + ", ".join(PLATFORMS),
            fix="pass one of these, or nothing",
        )
    return (lambda f: as_kernel(f, mode, target)) if func is None else as_kernel(func, mode, target)


def trace(func: Callable | None = None, **kwargs: Any) -> Any:
    """Make a Python function an NKI kernel that other kernels may call (`mode="trace"`)."""
    return _decorator("trace", func)


def baremetal(kernel: Callable | None = None, **kwargs: Any) -> Any:
    """Run a kernel without a framework: NumPy arrays in and out.

    On hardware this compiles to a NEFF and runs it. Under `python -m nkisim` the files that options
    name get the modelled timeline, for the stand-in of neuron-profile; elsewhere none is written.

    Args:
        kernel: a function or a kernel.
        **kwargs: save_neff_name, save_trace_name, additional_compile_opt and artifacts_dir.

    Raises:
        ParameterError: an option has a value that the documentation excludes: artifacts_dir is not
            empty, or save_trace_name is given without save_neff_name="file.neff".
    """
    check_options("nki.baremetal", kwargs)
    check_files("nki.baremetal", kwargs, neff_needed=True)
    if kernel is None:
        return lambda f: run_baremetal(f, kwargs)
    return run_baremetal(kernel, kwargs)


def simulate_kernel(kernel: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on the CPU: NumPy arrays in and out.

    Args:
        kernel: a function, a kernel, or a kernel bound to a grid (`kernel[2, 2]`).
        *args, **kwargs: its arguments: NumPy arrays and constants.

    Raises:
        ParameterError: an argument is a tensor of a framework.

    Numbers are rounded as on hardware. (The SDK's own simulator keeps bf16 and fp8 tiles in fp32;
    for that declare the kernel with `@nki.jit(mode="simulation")`.) Instances of a grid that all
    write the same values, tiles placed past the end of SBUF, and iterations of affine_range that
    read what earlier ones wrote once for all, are reported with a warning here and in profiles;
    elsewhere they are errors.
    """
    frameworks.require_numpy("nki.simulate_kernel", leaves((args, kwargs)))
    with simulated():
        return as_kernel(kernel)(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "FrameworkKernel":  # imported late: `import nkisim` stays free of the bridges
        from nkisim.runtime.frameworks.base import FrameworkKernel

        return FrameworkKernel
    return names.missing("nki")(name)

"""`import nki`: `nki.jit` and `nki.simulate`. NKI 0.6, on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.nki import kernel as kernels
from nkisim.frontends.nki.surface import collectives, isa, language, typing
from nkisim.frontends.nki.surface.names import missing
from nkisim.runtime.kernel import Kernel, as_kernel

__all__ = ["collectives", "isa", "jit", "language", "simulate", "typing"]
__version__ = "0.6.0"


def jit(fn: Callable | None = None, **kwargs: Any) -> Any:
    """Make a Python function an NKI kernel: `@nki.jit`.

    Args:
        fn: the kernel function.
        **kwargs: `mode` and other options of earlier releases, which have no meaning any more.

    Returns:
        A kernel: `kernel(*args)`, or `kernel[lnc](*args)` on 1 or 2 cores of a logical core. NumPy
        arrays in, NumPy arrays out; PyTorch and JAX arrays stay in their framework.

    Raises:
        ParameterError: with platform_target; the environment names the target.
    """
    if "platform_target" in kwargs:
        raise ParameterError(
            f"nki.jit(platform_target={kwargs['platform_target']!r})",
            rule="since NKI 0.3 the environment names the target",
            fix="set NEURON_PLATFORM_TARGET_OVERRIDE=trn2, or another one",
        )
    if fn is None:
        return lambda f: jit(f, **kwargs)
    return _kernel(fn)


def simulate(kernel: Callable) -> Any:
    """A kernel that runs on the CPU simulator, whatever devices there are.

    Args:
        kernel: a kernel, one bound to cores (`kernel[2]`), or a function.

    Returns:
        A callable: NumPy arrays or PyTorch tensors in, the same kind out. `simulate(k)[2](*args)`
        runs it on two cores.

    Tiles are rounded to their types, as hardware does; with NKI_PRECISE_FP=0 in the environment
    those of bf16 and fp8 on chip keep fp32 precision. NKI_SIMULATOR changes nothing: without a
    device every kernel is simulated.
    """
    return _kernel(kernel)


def _kernel(function: Callable | Kernel) -> Kernel:
    found = as_kernel(function, dialect=kernels.NKI)
    if found.dialect.name != kernels.NKI.name:
        raise ParameterError(
            f"{found!r} is a kernel of {found.dialect.name}",
            rule="nki.jit takes functions that use nki.language and nki.isa",
            fix="call it with neuronxcc.nki, or translate it",
        )
    return found


__getattr__: Callable[[str], Any] = missing("nki")

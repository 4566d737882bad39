"""`import nki`: `nki.jit` and `nki.simulate`. NKI 0.7 on the simulator, or 0.6 (see `releases`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.nki import kernel as kernels
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.configuration import CompileConfig, Config, SpecializationConfig
from nkisim.frontends.nki.surface import collectives, compiler, isa, language, typing
from nkisim.frontends.nki.surface.names import missing
from nkisim.runtime.kernel import Kernel, as_kernel

__all__ = ["collectives", "compiler", "isa", "jit", "language", "simulate", "typing"]


def jit(
    fn: Callable | None = None,
    *,
    compile_config: CompileConfig | None = None,
    specialization_config: SpecializationConfig | None = None,
    **kwargs: Any,
) -> Any:
    """Make a Python function an NKI kernel: `@nki.jit`.

    Args:
        fn: the kernel function.
        compile_config: what the compiler does with it. New in NKI 0.7.
        specialization_config: what specialising it allows. New in NKI 0.7.
        **kwargs: `mode` and other options of earlier releases, which have no meaning any more.

    Returns:
        A kernel: `kernel(*args)` runs it on NEURON_LOGICAL_NC_CONFIG cores of a logical core, 1 if
        that is not set; `kernel[lnc](*args)` on 1 or 2. NumPy arrays in, NumPy arrays out; PyTorch
        and JAX arrays stay in their framework.

    Raises:
        ParameterError: with platform_target, as the environment names the target; or a
            configuration that is none.
    """
    if "platform_target" in kwargs:
        raise ParameterError(
            f"nki.jit(platform_target={kwargs['platform_target']!r})",
            rule="since NKI 0.3 the environment names the target",
            fix="set NEURON_PLATFORM_TARGET_OVERRIDE=trn2, or another one",
        )
    config = Config(
        _of_kind("compile_config", compile_config, CompileConfig),
        _of_kind("specialization_config", specialization_config, SpecializationConfig),
    )

    def decorate(function: Callable) -> Kernel:
        made = _kernel(function)
        return made if config == Config() else made.with_config(config)

    return decorate if fn is None else decorate(fn)


def _of_kind(setting: str, given: Any, kind: type) -> Any:
    if given is None or isinstance(given, kind):
        return given
    raise ParameterError(
        f"nki.jit({setting}={given!r})",
        rule=f"it is a {kind.__name__}",
        fix=f"pass {setting}=nki.compiler.{kind.__name__}(...)",
    )


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


_missing = missing("nki")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return f"{releases.release()}.0"
    return _missing(name)

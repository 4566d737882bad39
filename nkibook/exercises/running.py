"""Run an answer on the arrays of its framework, and find out which kernels it launched."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import kernels
from kernels.arrays import Framework

if TYPE_CHECKING:
    from nkisim.numerics.program import Program
    from nkisim.runtime.kernel import Specialization


def framework_of(page: str) -> Framework:
    """The framework that a page's process has started: the one in its name, JAX for the page on
    handlers in C++ and for those on what pays, else none."""
    known: dict[str, Framework] = {"torch": "torch", "jax": "jax", "ffi": "jax"}
    if page in ("payoff", "which_kernel"):
        return "jax"
    return known.get(page.rpartition("_")[2], "numpy")


def is_of_the_machine(error: Exception) -> bool:
    """Whether an error is about what is installed or running here, and no fault of the answer."""
    if isinstance(error, ImportError | MemoryError | OSError):
        return True
    # The runtime's own errors have no type: "NRT: nrt_init failed", "NRT_FAIL_HOST_MEM_ALLOC".
    return isinstance(error, RuntimeError) and "NRT" in str(error)


@contextlib.contextmanager
def launches() -> Iterator[list[Specialization]]:
    """The kernels launched in a `with` block; none on a Neuron instance."""
    if kernels.backend != "nkisim":
        yield []
        return
    from nkisim.runtime import watch

    with watch.launches(each=True) as found:
        yield found


def compiled(answer: Callable[..., Any], args: tuple[Any, ...]) -> list[Program] | None:
    """The NKI kernels in what XLA compiles of an answer, one an HLO custom call.

    None for an answer that JAX cannot compile whole.
    """
    from nkibook.hlo import jax_hlo
    from nkibook.hlo.calls import NKI_TARGET
    from nkisim.runtime.frameworks.programs import find_program

    def on_tensors(*tensors: Any) -> Any:
        rest = iter(tensors)
        return answer(*(next(rest) if hasattr(a, "shape") else a for a in args))

    try:
        module = jax_hlo(on_tensors, *(a for a in args if hasattr(a, "shape"))).after
    except Exception:  # an answer that runs need not be one that JAX can compile whole
        return None
    calls = [call for call in module.custom_calls if call.target == NKI_TARGET]
    configs = [json.dumps(call.config).encode() for call in calls]
    return [find_program(base64.b64encode(config)) for config in configs]


def is_kernel(answer: Any) -> bool:
    """Whether the answer is a kernel, so that its outputs are the answer's, and not a function."""
    from nkisim.runtime.kernel import Kernel

    return isinstance(answer, Kernel)


def only(launched: list[Program]) -> Program | None:
    """The one kernel that was launched; None when there are several, or none."""
    return launched[0] if len(launched) == 1 else None


def latency(launched: list[Program]) -> float:
    """Modelled latency of the kernels in turn, in µs."""
    from nkisim.report.modelled import timeline

    return sum(timeline(program.trace).latency_us for program in launched)

"""``nki.FrameworkKernel``: what a framework needs to put a NKI kernel into its HLO.

A framework says which arguments are tensors and what their shapes and dtypes are. From that comes
the traced program and the ``backend_config`` string that the HLO custom call carries.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nkisim.kernel import Kernel, Specialization, TensorSpec

_configs: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class Lowered(NamedTuple):
    """A kernel specialised to one call's arguments.

    Attributes:
        specialization: the traced program, and how its outputs become the kernel's result.
        tensors: the framework's tensors, in the order of ``specialization.program.inputs``.
    """

    specialization: Specialization
    tensors: list[Any]


class FrameworkKernel:
    """A NKI kernel seen from a framework. Subclass it for each framework.

    A kernel becomes one HLO instruction ``custom-call`` with the target
    ``AwsNeuronCustomNativeKernel`` and the string of :meth:`dump_config` as its backend_config.
    Subclasses define :meth:`is_framework_tensor`, :meth:`map_framework_tensor` and
    :meth:`translate_to_neuron_dtype`.

    Args:
        func: the kernel: a plain function, or what ``nki.jit`` makes of it.
        func_name: its name in the backend_config; by default the function's own.
        grid: the SPMD launch grid; by default the one that ``func`` is bound to.
        enable_cache: reuse the backend_config of an equal call.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        func_name: str | None = None,
        grid: Sequence[Any] = (),
        enable_cache: bool = True,
    ) -> None:
        kernel = func if isinstance(func, Kernel) else Kernel(func)
        self.kernel = kernel[tuple(grid)] if grid else kernel
        self.func_name = func_name or kernel.__name__
        self.enable_cache = enable_cache

    def is_framework_tensor(self, t: Any) -> bool:
        """True for a tensor, False for a constant known while tracing."""
        raise NotImplementedError(f"{type(self).__name__} must define is_framework_tensor")

    def map_framework_tensor(self, t: Any) -> tuple[Sequence[int], Any]:
        """Shape and dtype (the framework's own) of a tensor."""
        raise NotImplementedError(f"{type(self).__name__} must define map_framework_tensor")

    def translate_to_neuron_dtype(self, _dtype: Any) -> np.dtype:
        """The NumPy or ml_dtypes dtype of a framework's dtype."""
        raise NotImplementedError(f"{type(self).__name__} must define translate_to_neuron_dtype")

    def lower(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Lowered:
        """Trace the kernel for these arguments, or find the trace of an equal call.

        Raises:
            nkisim.errors.KernelError: the kernel does what the hardware or compiler rejects.
        """
        tensor_of: dict[int, Any] = {}

        def describe(value: Any) -> Any:
            if not self.is_framework_tensor(value):
                return value
            shape, dtype = self.map_framework_tensor(value)
            spec = TensorSpec(tuple(shape), self.translate_to_neuron_dtype(dtype))
            tensor_of[id(spec)] = value
            return spec

        specialization = self.kernel.specialize(
            tuple(map_leaves(describe, value) for value in args),
            {name: map_leaves(describe, value) for name, value in kwargs.items()},
        )
        return Lowered(specialization, [tensor_of[id(spec)] for spec in specialization.inputs])

    def dump_config(self, *args: Any, **kwargs: Any) -> tuple[str, list[str], list[str]]:
        """What the custom call of ``kernel(*args, **kwargs)`` carries.

        Returns:
            The backend_config (base64 of a JSON object), the names of the program's input tensors
            and those of its outputs.
        """
        program = self.lower(args, kwargs).specialization.program
        return (
            self.backend_config(program),
            [spec.name for spec in program.inputs],
            [spec.name for spec in program.outputs],
        )


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply ``function`` to everything inside (nested) tuples, lists and dicts."""
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [map_leaves(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return function(value)

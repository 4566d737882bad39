"""``nki.FrameworkKernel``: what a framework needs to put a NKI kernel into its HLO.

A framework says which arguments are tensors and what their shapes and dtypes are. From that comes
the traced program and the ``backend_config`` string that the HLO custom call carries.
"""

from __future__ import annotations

import base64
import json
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nkisim.numerics.program import Program, TensorSpec
from nkisim.runtime.frameworks.programs import add_program
from nkisim.runtime.kernel import Specialization, as_kernel
from nkisim.trace.arguments import map_arguments

# For each specialisation, its backend_config by func_name.
_configs: weakref.WeakKeyDictionary[Specialization, dict[str, str]] = weakref.WeakKeyDictionary()


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
        kernel = as_kernel(func)
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

    def specialize(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Specialization, list[Any]]:
        """Trace the kernel for these arguments, or find the trace of an equal call.

        Returns:
            The specialised kernel, and the framework's tensors among the arguments in the order
            of ``program.inputs``.

        Raises:
            nkisim.errors.KernelError: the kernel does what the hardware or compiler rejects.
        """
        args, kwargs = self.kernel.bind(args, kwargs)
        tensors: list[Any] = []

        def abstract(value: Any) -> Any:
            if not self.is_framework_tensor(value):
                return value
            tensors.append(value)
            shape, dtype = self.map_framework_tensor(value)
            return TensorSpec(tuple(shape), self.translate_to_neuron_dtype(dtype))

        return self.kernel.specialize(*map_arguments(abstract, args, kwargs)), tensors

    def dump_config(self, *args: Any, **kwargs: Any) -> tuple[str, list[str], list[str]]:
        """What the custom call of ``kernel(*args, **kwargs)`` carries.

        Returns:
            The backend_config (base64 of a JSON object), the names of the program's input tensors
            and those of its outputs.
        """
        specialization, _ = self.specialize(args, kwargs)
        program = specialization.program
        return (
            self.backend_config(specialization),
            [spec.name for spec in program.inputs],
            _output_names(program),
        )

    def backend_config(self, specialization: Specialization) -> str:
        """The string a custom call carries: base64 of a JSON object that describes the program.

        Its fields: ``func_name``; ``grid``, the instances along each axis; ``inputs`` and
        ``outputs``, each a list of [name, shape, dtype]; ``constants``, the other arguments;
        ``instructions``, how many; ``digest``, which identifies the instruction stream, and by
        which :func:`nkisim.runtime.frameworks.programs.find_program` finds the program again.
        """
        add_program(specialization.program)
        cached = _configs.setdefault(specialization, {})
        if not (self.enable_cache and self.func_name in cached):
            cached[self.func_name] = self._make_config(specialization)
        return cached[self.func_name]

    def _make_config(self, specialization: Specialization) -> str:
        program = specialization.program
        fields = {
            "func_name": self.func_name,
            "grid": list(specialization.kernel.grid.shape),
            "inputs": [[spec.name, spec.shape, spec.dtype.name] for spec in program.inputs],
            "outputs": [
                [name, spec.shape, spec.dtype.name]
                for name, spec in zip(_output_names(program), program.outputs, strict=True)
            ],
            "constants": {k: _as_json(v) for k, v in specialization.constants.items()},
            "instructions": len(program.instructions),
            "digest": program.digest,
        }
        text = json.dumps(fields, sort_keys=True)
        return base64.b64encode(text.encode()).decode()


def _output_names(program: Program) -> list[str]:
    """Names of the outputs; one that the kernel left unnamed is called by its position."""
    return [spec.name or f"output{i}" for i, spec in enumerate(program.outputs)]


def _as_json(constant: Any) -> Any:
    """A constant as JSON has it, or text for one: a list in itself, a key that is no text."""
    for described in (lambda: constant, lambda: _describe(constant)):
        try:
            return json.loads(json.dumps(described(), sort_keys=True, default=_describe))
        except Exception:  # whatever a class of the caller's raises
            continue
    return type(constant).__qualname__


def _describe(constant: Any) -> str:
    """Text for a constant that JSON does not have, the same in every process."""
    name = getattr(constant, "__qualname__", None)
    return name or re.sub(r" at 0x[0-9a-f]+", "", repr(constant))

"""How NKI kernels meet PyTorch and JAX.

This package imports neither. :func:`bridge_for` looks at a call's arguments and returns the module
that serves their framework; a call with NumPy arrays only loads nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from nkisim.errors import ParameterError

_TENSOR_TYPES = {"torch": "Tensor", "jax": "Array"}


def _framework_of(value: Any) -> str | None:
    """``"torch"`` or ``"jax"`` for their tensors and tracers, None for anything else.

    A value can only be a framework's tensor if that framework is imported already.
    """
    for framework, name in _TENSOR_TYPES.items():
        tensor_type = getattr(sys.modules.get(framework), name, None)
        if tensor_type is not None and isinstance(value, tensor_type):
            return framework
    return None


def as_numpy(value: Any) -> np.ndarray:
    """A tensor of any framework, with its values, as a NumPy array.

    Raises:
        TypeError: a JAX tracer, which has no values.
    """
    if _framework_of(value) == "torch":
        return importlib.import_module(f"{__name__}.torch").as_numpy(value)
    return np.asarray(value)


def _no_device(*_: Any) -> Any:
    return None


# Of the device that nkisim.runtime.torch_neuron makes, once it is there: whether PyTorch's Dynamo
# reads the code that is running, whether a kernel's arguments are the device's, the call that
# Dynamo puts into its graph, and how that names a kernel.
compiling: Callable[[], bool] = _no_device
takes: Callable[[tuple[Any, ...], dict[str, Any]], bool] = _no_device
record: Callable[..., Any] = _no_device
numbered: Callable[[Any], tuple[int, tuple[int, ...]]] = _no_device


def has_device() -> bool:
    """Whether PyTorch's `neuron` device is the simulator's."""
    return takes is not _no_device


class BoundKernel:
    """A kernel with brackets, ``kernel[2]``, in the code that Dynamo reads.

    Dynamo cannot follow how a kernel is bound to its cores, and need not: its graph has the number
    of the bound kernel.
    """

    def __init__(self, kernel: Any, grid: object) -> None:
        self.kernel, self.grid = kernel, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if takes(args, kwargs):
            return record(self.kernel, args, kwargs, self.grid)
        return opaque(_launch)(self.kernel, self.grid, args, kwargs)


def _launch(kernel: Any, grid: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kernel[grid](*args, **kwargs)


_opaque: dict[Callable[..., Any], Callable[..., Any]] = {}


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as torch.compile calls it and does not look into it.

    It would translate the simulator's NumPy calls into PyTorch ones.
    """
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds
        return function
    if function not in _opaque:
        _opaque[function] = sys.modules["torch"].compiler.disable(function)
    return _opaque[function]


def bridge_for(values: Iterable[Any]) -> ModuleType | None:
    """The module that runs a kernel on these arguments, or None for NumPy arrays and constants.

    Args:
        values: the leaves of a kernel call's arguments.

    Returns:
        :mod:`nkisim.runtime.frameworks.torch`, :mod:`nkisim.runtime.frameworks.jax` or None. Each
        module has
        ``call(kernel, args, kwargs)``, which returns what the kernel returns, as that framework's
        tensors.

    Raises:
        TypeError: tensors of both frameworks in one call.
    """
    found = {framework for value in values if (framework := _framework_of(value))}
    if not found:
        return None
    if len(found) > 1:
        raise TypeError(
            "one kernel call got both PyTorch tensors and JAX arrays. A kernel runs in one "
            "framework. Convert the arguments to one of them first."
        )
    return importlib.import_module(f"{__name__}.{found.pop()}")


def require_numpy(what: str, values: Iterable[Any]) -> None:
    """Raises ParameterError when a value is a tensor of a framework.

    Args:
        what: what runs the kernel, for the message.
        values: the leaves of its arguments.
    """
    for value in values:
        framework = _framework_of(value)
        if framework is not None:
            raise ParameterError(
                f"{what} is given a {type(value).__module__}.{type(value).__name__}",
                rule=f"{what} takes and gives NumPy arrays",
                fix="convert it with np.asarray(...), or call a kernel of mode='auto' itself",
            )

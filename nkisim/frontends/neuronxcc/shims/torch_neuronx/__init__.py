"""Stand-in for ``torch_neuronx``, in both of its forms.

The one beside PyTorch/XLA has the decorator ``nki_jit`` for kernels of `neuronxcc.nki`. The one of
SDK 2.30 and later is a backend of PyTorch: importing it makes ``torch.device("neuron")``, and it
has ``nki_op`` and ``wrap_nki`` for kernels of `import nki`, and ``synchronize``.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

from nkisim.frontends.neuronxcc.nki import jit

__all__ = ["nki_jit", "nki_op", "synchronize", "wrap_nki"]

_no_device: RuntimeError | None = None
if importlib.util.find_spec("torch") is not None:
    from nkisim.runtime.torch_neuron import set_up

    try:
        set_up()
    except RuntimeError as error:
        _no_device = error
        if "torch_xla" not in sys.modules:  # who is on PyTorch/XLA has a device
            warnings.warn(f"there is no torch.device('neuron'): {error}", stacklevel=2)


def nki_jit(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorate a NKI kernel for PyTorch.

    The kernel may return its outputs, or be of the old style that writes output arguments in
    place. Launch it as ``kernel[grid](*tensors)``.

    Args:
        func: the kernel function. Without it, returns a decorator.
        kwargs: options of ``nki.jit``.
    """
    return jit(func, mode="torchxla", **kwargs)


def __getattr__(name: str) -> Any:
    if name in ("nki_op", "synchronize", "wrap_nki"):
        if _no_device is not None:
            raise _no_device
        if name == "synchronize":
            import torch

            return torch.neuron.synchronize  # type: ignore[attr-defined]
        from nkisim.runtime.torch_neuron import nki_op

        return getattr(nki_op, name)
    raise AttributeError(f"module 'torch_neuronx' of nkisim has no attribute {name!r}")

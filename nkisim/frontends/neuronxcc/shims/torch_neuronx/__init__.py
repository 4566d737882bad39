"""Stand-in for ``torch_neuronx``: the decorator ``nki_jit`` for kernels on PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.frontends.neuronxcc.nki import jit

__all__ = ["nki_jit"]


def nki_jit(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorate a NKI kernel for PyTorch.

    The kernel may return its outputs, or be of the old style that writes output arguments in
    place. Launch it as ``kernel[grid](*tensors)``.

    Args:
        func: the kernel function. Without it, returns a decorator.
        kwargs: options of ``nki.jit``.
    """
    return jit(func, mode="torchxla", **kwargs)

"""Stand-in for ``jax_neuronx``: ``nki_call`` for kernels of the old style on JAX arrays.

Programs also import ``jax_neuronx`` only because the SDK registers its lowering that way. nkisim
registers on the first call, so importing this module loads nothing of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["nki_call"]


def nki_call(
    kernel: Callable[..., Any],
    *args: Any,
    grid: Sequence[Any] = (),
    out_shape: Any = None,
    **kwargs: Any,
) -> Any:
    """Call ``kernel(*args, *outputs, **kwargs)`` on JAX arrays and return the outputs.

    See :func:`nkisim.runtime.frameworks.jax.nki_call`.
    """
    from nkisim.runtime.frameworks import jax as bridge

    return bridge.nki_call(kernel, *args, grid=grid, out_shape=out_shape, **kwargs)

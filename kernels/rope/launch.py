"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.launch import kernel_of
from kernels.rope.arguments import check_filled


def nki_rope(x: Any, cos: Any, sin: Any, inverse: bool = False, *, lnc: int | None = None) -> Any:
    """Rotate the heads of queries or keys with :func:`nki_rope_kernel`.

    Dimensions:
        "...": sequences and heads: any axes. S: positions. D: elements of a head, even, 2 to 2048.

    Args:
        x: (..., S, D), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX
            array.
        cos, sin: (S, D / 2) float32, framework and device of ``x``: see
            :func:`kernels.rope.reference.rotations`.
        inverse: whether to rotate by the negative angles, which gives the gradient.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: shapes that do not fit, a head that is too long, or no elements.
    """
    check_filled(x, cos, sin)
    heads = x.reshape((-1, *x.shape[-2:]))
    return kernel_of("rope", "nki_rope_kernel", lnc)(heads, cos, sin, bool(inverse)).reshape(
        tuple(x.shape)
    )

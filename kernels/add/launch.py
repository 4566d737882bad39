"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

import kernels
from kernels.add.arguments import TILE_COLS, TILE_ROWS, check_filled
from kernels.launch import kernel_of
from kernels.tiles import ceil_div


def nki_tensor_add(
    a_input: Any,
    b_input: Any,
    *,
    lnc: int | None = None,
) -> Any:
    """Add two arrays with :func:`nki_tensor_add_kernel`.

    Args:
        a_input: (..., N), any number of axes in front of the last one; float32, bfloat16 or
            float16. A NumPy array, a PyTorch tensor or a JAX array.
        b_input: shape, dtype, framework and device of ``a_input``.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on.
            By default as many as the runtime joins
            (:func:`kernels.logical_core.cores`).

    Returns:
        Shape, dtype and framework of the inputs.

    Raises:
        TypeError: dtypes that differ or that the kernel does not take.
        ValueError: no axis, shapes that differ, or no elements.
    """
    check_filled(a_input, b_input)
    shape = tuple(a_input.shape)
    rows = a_input.reshape(-1, shape[-1]), b_input.reshape(-1, shape[-1])
    launched = kernel_of("add", "nki_tensor_add_kernel", lnc)
    if kernels.dialect == "neuronxcc":  # which has one instance a tile
        n_rows, n_cols = rows[0].shape
        launched = launched[ceil_div(n_rows, TILE_ROWS), ceil_div(n_cols, TILE_COLS)]
    return launched(*rows).reshape(shape)

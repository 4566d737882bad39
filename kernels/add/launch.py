"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

import kernels
from kernels.add.arguments import TILE_COLS, TILE_ROWS, check
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
        a_input: (M, N), M and N at least 1; float32, bfloat16 or float16.
            A NumPy array, a PyTorch tensor (CPU or XLA) or a JAX array.
        b_input: (M, N), same dtype, framework and device as ``a_input``.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on.
            By default as many as the runtime joins
            (:func:`kernels.logical_core.cores`).

    Returns:
        (M, N), dtype and framework of the inputs.

    Raises:
        TypeError: dtypes that differ or that the kernel does not take.
        ValueError: not 2-D, shapes that differ, or no elements.
    """
    check(a_input, b_input)
    launched = kernel_of("add", "nki_tensor_add_kernel", lnc)
    if kernels.dialect == "neuronxcc":  # which has one instance a tile
        n_rows, n_cols = a_input.shape
        launched = launched[ceil_div(n_rows, TILE_ROWS), ceil_div(n_cols, TILE_COLS)]
    return launched(a_input, b_input)

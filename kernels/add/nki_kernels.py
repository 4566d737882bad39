"""Tensor addition as NKI kernels, and the caller that launches them.

Three kernels compute ``c = a + b`` on 2-D tensors, each instance of the SPMD grid one tile:
the strict one of the tutorial, one for any shape, and the same one spread over two NeuronCores.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

TILE_ROWS = 128
"""Rows of a tile: the partition axis of SBUF has 128 partitions (``nl.tile_size.pmax``)."""

STRICT_COLS = 512
"""Columns of a tile of the strict kernel, as in the tutorial."""

TILE_COLS = 2048
"""Columns of a tile: elements of the free axis, in each partition. A choice, not a limit. In
float32 a row of a tile is 8 KiB, above the 4 KiB at which a DMA is efficient; 512 columns are 2."""

DTYPES = ("float32", "bfloat16", "float16")
"""Element types that the add kernels take."""


@nki.jit
def nki_tensor_add_kernel_strict(a_input, b_input):
    """Add two tensors whose shapes are whole numbers of tiles.

    Dimensions:
        M: rows, a multiple of 128. N: columns, a multiple of 512.

    Args:
        a_input: (M, N) in HBM.
        b_input: (M, N) in HBM, same dtype as ``a_input``.

    Returns:
        (M, N) in HBM, dtype of ``a_input``.

    Notes:
        Launch on the grid ``[M // 128, N // 512]``. Each instance writes its own tile, so the
        instances need no order.

    Pseudocode:
        rows, cols = tile number program_id
        c[rows, cols] = a[rows, cols] + b[rows, cols]
    """
    c_output = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)

    # Where this instance's tile begins.
    first_row = nl.program_id(0) * TILE_ROWS
    first_col = nl.program_id(1) * STRICT_COLS
    i_row, i_col = nl.mgrid[0:TILE_ROWS, 0:STRICT_COLS]
    rows = first_row + i_row
    cols = first_col + i_col

    a_tile = nl.load(a_input[rows, cols])
    b_tile = nl.load(b_input[rows, cols])
    c_tile = a_tile + b_tile
    nl.store(c_output[rows, cols], value=c_tile)

    return c_output


@nki.jit
def nki_tensor_add_kernel(a_input, b_input):
    """Add two tensors of any 2-D shape.

    Dimensions:
        M: rows. N: columns. Both at least 1, no multiple of anything.

    Args:
        a_input: (M, N) in HBM.
        b_input: (M, N) in HBM, same dtype as ``a_input``.

    Returns:
        (M, N) in HBM, dtype of ``a_input``.

    Notes:
        Launch on the grid ``[ceil(M / 128), ceil(N / 2048)]``; more instances do no harm. The mask
        keeps the tiles at the bottom and right edges inside the tensor. It compares index
        expressions, which the compiler knows, so it costs nothing at run time.

    Pseudocode:
        rows, cols = tile number program_id, cut where the tensor ends
        c[rows, cols] = a[rows, cols] + b[rows, cols]
    """
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)

    first_row = nl.program_id(0) * TILE_ROWS
    first_col = nl.program_id(1) * TILE_COLS
    i_row, i_col = nl.mgrid[0:TILE_ROWS, 0:TILE_COLS]
    rows = first_row + i_row
    cols = first_col + i_col
    inside = (rows < n_rows) & (cols < n_cols)

    a_tile = nl.load(a_input[rows, cols], mask=inside)
    b_tile = nl.load(b_input[rows, cols], mask=inside)
    c_tile = nl.add(a_tile, b_tile, mask=inside)
    nl.store(c_output[rows, cols], value=c_tile, mask=inside)

    return c_output


def nki_tensor_add(a_input: Any, b_input: Any) -> Any:
    """Add two arrays with :func:`nki_tensor_add_kernel` on one NeuronCore.

    Args:
        a_input: (M, N), M and N at least 1; float32, bfloat16 or float16. A NumPy array, a
            PyTorch tensor (CPU or XLA) or a JAX array.
        b_input: (M, N), same dtype, framework and device as ``a_input``.

    Returns:
        (M, N), dtype and framework of the inputs.

    Raises:
        TypeError: dtypes that differ or that the kernel does not take.
        ValueError: not 2-D, shapes that differ, or no elements.
    """
    check(a_input, b_input)
    n_rows, n_cols = a_input.shape
    grid = (_ceil_div(n_rows, TILE_ROWS), _ceil_div(n_cols, TILE_COLS))
    return nki_tensor_add_kernel[grid](a_input, b_input)


def nki_tensor_add_two_cores(a_input: Any, b_input: Any) -> Any:
    """Add two arrays with :func:`nki_tensor_add_kernel` on two NeuronCores.

    The cores take the row blocks in turn: core 0 the even ones, core 1 the odd ones. Both must see
    one HBM, which hardware offers from Trainium2 on (a logical NeuronCore of two physical ones).

    Args and errors are those of :func:`nki_tensor_add`.

    Returns:
        (M, N), dtype and framework of the inputs.
    """
    check(a_input, b_input)
    n_rows, n_cols = a_input.shape
    rows_of_both = _ceil_div(n_rows, 2 * TILE_ROWS)
    grid = (nl.spmd_dim(rows_of_both, nl.nc(2)), _ceil_div(n_cols, TILE_COLS))
    return nki_tensor_add_kernel[grid](a_input, b_input)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _dtype_name(array: Any) -> str:
    """``torch.bfloat16`` and NumPy's ``bfloat16`` have one name here."""
    return str(array.dtype).removeprefix("torch.")


def check(a: Any, b: Any) -> None:
    """Refuse what the kernel cannot add, before anything is traced.

    Raises:
        TypeError, ValueError: as :func:`nki_tensor_add`.
    """
    for name, array in (("a_input", a), ("b_input", b)):
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(
                f"{name} is a {type(array).__name__}. Pass a NumPy array, a PyTorch tensor or a "
                "JAX array."
            )
        if len(array.shape) != 2:
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}: {len(array.shape)} dimensions. The add "
                "kernel tiles 2-D tensors. Reshape first, for example x.reshape(-1, x.shape[-1])."
            )
        if 0 in array.shape:
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}: no elements. A launch grid has at least "
                "one tile. Skip the call for empty tensors."
            )
    if tuple(a.shape) != tuple(b.shape):
        raise ValueError(
            f"a_input has shape {tuple(a.shape)} and b_input {tuple(b.shape)}. The kernel does not "
            "broadcast. Broadcast or slice one of them to the other's shape first."
        )
    dtype_a, dtype_b = _dtype_name(a), _dtype_name(b)
    if dtype_a != dtype_b:
        raise TypeError(
            f"a_input is {dtype_a} and b_input {dtype_b}. The kernel adds tensors of one dtype. "
            "Cast one of them first."
        )
    if dtype_a not in DTYPES:
        raise TypeError(
            f"the inputs are {dtype_a}. The add kernel takes {', '.join(DTYPES)}. "
            "Cast the inputs first."
        )

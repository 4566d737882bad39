"""Data between HBM and SBUF, and to the host that prints it."""

from __future__ import annotations

from nkisim.errors import MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki import declare
from nkisim.frontends.nki.dtypes import type_of
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.constants import sbuf
from nkisim.frontends.nki.surface.operators import copy
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.numerics.ops.movement import Print

__all__ = ["device_print", "load", "load_transpose2d", "store"]


def load(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A tensor in HBM, in a new SBUF tile. One axis becomes a column.

    Raises:
        MemorySpaceError: src is not in HBM.
        TileSizeError: more than 128 partitions.
    """
    _require_hbm("nl.load from", src)
    shape = src.shape if src.ndim > 1 else (src.shape[0], 1)
    dst = declare.make(shape, dtype or src.dtype, sbuf)
    isa.dma_copy(dst, src)
    return dst


def load_transpose2d(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A two-dimensional tensor in HBM, transposed in a new SBUF tile.

    Raises:
        MemorySpaceError: src is not in HBM.
        ShapeError: src has not two axes.
    """
    _require_hbm("nl.load_transpose2d from", src)
    if src.ndim != 2:
        raise ShapeError(
            f"nl.load_transpose2d from {src.describe()}", rule="it takes two axes", fix="reshape"
        )
    dst = declare.make((src.shape[1], src.shape[0]), src.dtype, sbuf)
    isa.dma_transpose(dst, src)
    if dtype is None or type_of(dtype).name == src.dtype:
        return dst
    return copy(dst, dtype)


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """An SBUF tile into a tensor in HBM.

    Raises:
        MemorySpaceError: dst is not in HBM, or value is in PSUM.
        ShapeError: different numbers of elements.
    """
    _require_hbm("nl.store to", dst)
    if isinstance(value, NkiTensor) and value.buffer is MemoryRegion.psum:
        raise MemorySpaceError(
            f"nl.store of {value.describe()}",
            rule="a DMA moves data between HBM and SBUF",
            fix="copy it to SBUF first: nl.copy(tile)",
        )
    isa.dma_copy(dst, value)


def _require_hbm(call: str, t: NkiTensor) -> None:
    current()  # which tells of a kernel of the other dialect
    if not isinstance(t, NkiTensor) or t._layout.on_chip:
        given = t.describe() if isinstance(t, NkiTensor) else repr(t)
        raise MemorySpaceError(
            f"{call} {given}", rule="it takes a tensor in HBM", fix="use nl.copy on chip"
        )


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor when the kernel runs.

    Args:
        print_prefix: a string known while tracing.
        tensor: in SBUF or HBM.

    Raises:
        ParameterError, MemorySpaceError: it is given something else.
    """
    session = current()
    if not isinstance(print_prefix, str) or not isinstance(tensor, NkiTensor):
        raise ParameterError(
            f"nl.device_print({print_prefix!r}, {tensor!r})",
            rule="it takes a string known while tracing, and a tensor",
            fix='write e.g. nl.device_print("tile", tile)',
        )
    if tensor.buffer is MemoryRegion.psum:
        raise MemorySpaceError(
            f"nl.device_print of {tensor.describe()}",
            rule="tensors in SBUF and HBM are printed",
            fix="copy it to SBUF first: nl.copy(tile)",
        )

    def lower() -> Recipe:
        own = tensor._layout
        settings = Print(prefix=print_prefix)
        return Recipe("device_print", None, [], [(own.shape, own.strides)], None, settings)

    session.issue(("device_print", print_prefix), (tensor,), lower)

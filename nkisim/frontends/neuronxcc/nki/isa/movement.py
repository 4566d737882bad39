"""`nki.isa` instructions that move data: DMA and gathers."""

from __future__ import annotations

from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.lowering import gather, movement
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.nki.isa.constants import choose, dge_mode, engine, oob_mode
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.indirect import IndirectTensor
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.trace.tracer import current

_OOB, _DGE = oob_mode, dge_mode  # dma_copy has parameters of these names
_COPY_ENGINES = (engine.vector, engine.scalar, engine.gpsimd)


@remembered
def dma_copy(
    *,
    dst: Tensor,
    src: Tensor,
    mask: Mask | None = None,
    dst_rmw_op: Any = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
) -> None:
    """Copy `src` to `dst` with a DMA engine, converting to `dst`'s type.

    Args:
        dst, src: HBM or SBUF tensors of one shape; either may be indexed with a tile.
        mask: which elements to copy.
        dst_rmw_op: np.add adds to `dst` instead; then `oob_mode` must be error.
        oob_mode: what to do when a tile's index is out of range: error, or skip the element.
        dge_mode: who writes the descriptors; hwdge needs NeuronCore-v3.

    Raises:
        MemorySpaceError: an operand is in PSUM.
        ParameterError: a setting that does not exist, or not with the others.
        ShapeError: the shapes do not fit.
        IndexError: when run, an index is out of range and `oob_mode` is error.
    """
    skip = _member("nisa.dma_copy", "oob_mode", oob_mode, _OOB) is _OOB.skip
    mode = _check_dge("nisa.dma_copy", dge_mode)
    if dst_rmw_op is not None:
        gather.require_add("nisa.dma_copy dst_rmw_op", dst_rmw_op)
        if skip:
            raise ParameterError(
                "nisa.dma_copy with dst_rmw_op and oob_mode.skip",
                rule="read-modify-write has no skip mode",
                fix="use nisa.oob_mode.error, with indices in range",
            )
    chosen = "" if mode is _DGE.unknown else mode.name
    movement.dma_copy(
        dst, src, mask=mask, accumulate=dst_rmw_op is not None, skip=skip, descriptors=chosen
    )


def _check_dge(what: str, mode: Any) -> dge_mode:
    chosen = _member(what, "dge_mode", mode, _DGE)
    machine = current().trace.machine
    if chosen is _DGE.hwdge and not machine.abilities.hardware_descriptors:
        raise ParameterError(
            f"{what} with dge_mode={mode!r} on {machine.name}",
            rule="descriptors are generated in hardware from NeuronCore-v3 on",
            fix="use nisa.dge_mode.swdge or none, or nki.jit(platform_target='trn2')",
        )
    return chosen


def _member(what: str, name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ParameterError(
            f"{what} with {name}={value!r}",
            rule=f"{name} is one of " + ", ".join(f"nisa.{name}.{m.name}" for m in kind),
            fix="pass one of these",
        ) from None


@remembered
def dma_transpose(
    src: Tensor,
    *,
    axes: tuple[int, ...] | None = None,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Transpose a tensor with a DMA engine.

    Args:
        src: HBM or SBUF tensor of 2, 3 or 4 axes.
        axes: the permutation: (1, 0), (2, 1, 0) or (3, 1, 2, 0), which is also what None means.
        mask: which elements of `src` to move.
        dtype: type of the result; `src`'s when None.
        dge_mode: who writes the descriptors; hwdge needs NeuronCore-v3.

    Returns:
        An SBUF tile, the first of the permuted axes on partitions.

    Raises:
        ShapeError: another number of axes.
        ParameterError: another permutation, or a dge_mode that the machine does not have.
        IndexingError: `src` is indexed with a tile.
    """
    _check_dge("nisa.dma_transpose", kwargs.get("dge_mode", _DGE.unknown))
    return movement.dma_transpose("nisa.dma_transpose", src, axes=axes, mask=mask, dtype=dtype)


def tensor_copy_dynamic_src(
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """Copy on chip from an offset that a tile holds: `t[i_p, index[0, i] + i_f]`.

    Args:
        src: an SBUF or PSUM tile indexed with one number of an SBUF tile.
        mask: which elements to copy.
        dtype: type of the result; `src`'s when None.
        engine: Vector, Scalar or GpSimd.

    Returns:
        An SBUF tile of `src`'s shape.

    Raises:
        ParameterError: the offset is not dynamic, or the engine does not copy.
        MemorySpaceError: `src` is in HBM.
        IndexError: when run, the offset is out of range.
    """
    chosen = choose("nisa.tensor_copy_dynamic_src", engine, *_COPY_ENGINES)
    return gather.tensor_copy_dynamic_src(src, mask=mask, dtype=dtype, engine=chosen)


def tensor_copy_dynamic_dst(
    *,
    dst: Tensor,
    src: Tensor,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> None:
    """Copy on chip to an offset that a tile holds, converting to `dst`'s type.

    Args:
        dst: an SBUF or PSUM tile indexed with one number of an SBUF tile.
        src: an SBUF or PSUM tile with `dst`'s partitions and elements a partition.
        mask: which elements to copy.
        dtype: type to convert `src` to first; none when None.
        engine: Vector, Scalar or GpSimd.

    Raises:
        ParameterError, MemorySpaceError, ShapeError, IndexError: as tensor_copy_dynamic_src.
    """
    chosen = choose("nisa.tensor_copy_dynamic_dst", engine, *_COPY_ENGINES)
    if dtype is not None and not isinstance(src, IndirectTensor):
        src = movement.copy(src, dtype=dtype)
    gather.tensor_copy_dynamic_dst(dst, src, mask=mask, engine=chosen)


def local_gather(
    src_buffer: Tensor,
    index: Tensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: Mask | None = None,
) -> Tensor:
    """Gather in each group of 16 partitions, by the indices that the group holds (GpSimd).

    The indices of a group are read partition by partition within each column, and are element
    offsets in a partition. All 16 partitions gather at the same offsets.

    Args:
        src_buffer: SBUF tile (partitions, free...); partitions a multiple of 16.
        index: SBUF tile of uint16 with the same partitions.
        num_elem_per_idx: neighbouring elements read at each index: 1, 2, 4, 8, 16 or 32.
        num_valid_indices: how many indices of each group count; all when None. At most 4096.
        mask: which elements of the result to compute.

    Returns:
        An SBUF tile of `src_buffer`'s type and shape (partitions, index elements a partition, 16,
        num_elem_per_idx), or (partitions, num_valid_indices, num_elem_per_idx) when fewer count.

    Raises:
        ShapeError, DTypeError, ParameterError: a limit above is broken.
        IndexError: when run, an index is out of range (hardware: undefined).
    """
    return gather.local_gather(src_buffer, index, num_elem_per_idx, num_valid_indices, mask=mask)


__all__ = [
    "dma_copy",
    "dma_transpose",
    "local_gather",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
]

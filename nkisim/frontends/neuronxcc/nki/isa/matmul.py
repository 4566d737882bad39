"""The Tensor Engine: nc_matmul and nc_transpose."""

from __future__ import annotations

from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.lowering import matmul as lowering
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import require_tile
from nkisim.frontends.neuronxcc.nki.isa.constants import choose, engine
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.trace.tracer import current


@remembered
def nc_matmul(
    stationary: Tensor,
    moving: Tensor,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`stationary.T @ moving` on the Tensor Engine, accumulated in fp32.

    `psum_tile += nisa.nc_matmul(...)` adds to the PSUM tile at no cost, which is how a contraction
    over more than 128 is done.

    Args:
        stationary: SBUF tile (K <= 128, M <= 128), fp8, bf16, fp16 or fp32. One in PSUM is
            copied by the simulator; AWS documents SBUF only, so write `nl.copy` for a device.
        moving: SBUF tile (K, N <= 512) of such a type; in PSUM, as above.
        is_stationary_onezero, is_moving_onezero: promise that a float32 operand holds only ones
            and zeros, which makes the matmul faster. The result is the same.
        is_transpose: says that moving is an identity matrix.
        tile_position, tile_size: (row, column) of the part of the 128 x 128 PE array to use.
        mask: conditions on axis 0 (the contraction) or axis 1 of either operand.
        perf_mode: "double_row_gen3" contracts two rows a partition of fp8 operands (K, 2, M) and
            (K, 2, N), on Trn2.

    Returns:
        A float32 PSUM tile (M, N).

    Raises:
        ParameterError: a perf_mode that the chip does not have.
        ShapeError, TileSizeError: contractions that differ, or operands larger than (128, 128) and
            (128, 512).
        MemorySpaceError: an operand that is not in SBUF.
    """
    what = "nisa.nc_matmul"
    mode = kwargs.get("perf_mode")
    abilities = current().trace.machine.abilities
    if mode is not None and (str(mode) != "double_row_gen3" or not abilities.fp8_pairs):
        raise ParameterError(
            f"{what}: perf_mode={mode!r} on {current().trace.machine.name}",
            rule='perf_mode is "double_row_gen3", for fp8 operands on NeuronCore-v3',
            fix='drop perf_mode, or target Trn2 with nki.jit(platform_target="trn2")',
        )
    if tile_position or tile_size:
        tile = require_tile(f"{what}: stationary", stationary)
        lowering.check_pe_tile(what, tile_position, tile_size, tile, abilities.array_tiles)
    return lowering.nc_matmul(
        what,
        stationary,
        moving,
        mask=mask,
        double_row=mode is not None,
        onezero=(bool(is_stationary_onezero), bool(is_moving_onezero))
        if is_stationary_onezero or is_moving_onezero
        else None,
        transpose=bool(is_transpose),
        tile=(*tile_position, *tile_size),
    )


@remembered
def nc_transpose(
    data: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """Transpose partitions and free axes, on the Tensor or the Vector Engine.

    The Tensor Engine multiplies by an identity matrix. On NeuronCore-v2 a NaN or infinity therefore
    makes the other elements of its free coordinate NaN: replace them first, or use the Vector
    Engine.

    Args:
        data: tile (P, F...), free axes taken as one: at most 128 x 128, in SBUF, on the Tensor
            Engine; at most 32 x 32, in SBUF or PSUM, on the Vector Engine. On NeuronCore-v3 that
            takes up to 128 x 128, with a warning, as a trn2 did, which AWS documents nowhere.
        mask: which elements of data to move.
        dtype: of the result; a dtype other than data's costs another instruction.
        engine: Tensor or Vector; by size when unknown.

    Returns:
        A tile (F, P), in PSUM from the Tensor Engine and in SBUF from the Vector Engine.
    """
    what = "nisa.nc_transpose"
    runs_on = choose(what, engine, *_engines)
    return lowering.nc_transpose(what, data, dtype=dtype, mask=mask, engine=runs_on)


_engines = (engine.tensor, engine.vector)

__all__ = ["nc_matmul", "nc_transpose"]

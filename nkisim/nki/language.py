"""`neuronxcc.nki.language`: the names that kernels use. What they do is in `nkisim.lowering`."""

from __future__ import annotations

from nkisim.dtypes import (
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    uint8,
    uint16,
    uint32,
)
from nkisim.index import MGrid, arange
from nkisim.lowering.control import (
    affine_range,
    nc,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    spmd_dim,
    static_range,
)
from nkisim.lowering.elementwise import FUNCTIONS, where
from nkisim.lowering.memory import (
    ds,
    empty_like,
    full,
    ndarray,
    ones,
    par_dim,
    zeros,
    zeros_like,
)
from nkisim.lowering.movement import broadcast_to, copy, device_print, expand_dims, load, store
from nkisim.lowering.normalize import rms_norm, softmax
from nkisim.lowering.reduce import all, max, mean, min, prod, sum, var
from nkisim.machine import TARGET
from nkisim.memory import Space

sbuf = Space.SBUF
psum = Space.PSUM
private_hbm = Space.PRIVATE_HBM
hbm = Space.PRIVATE_HBM
shared_hbm = Space.SHARED_HBM

mgrid = MGrid()

globals().update(FUNCTIONS)


class tile_size:
    """Limits of a tile, from the table of the NeuronCore generation."""

    pmax = TARGET.partitions
    psum_fmax = TARGET.psum_fmax
    gemm_stationary_fmax = TARGET.gemm_stationary_fmax
    gemm_moving_fmax = TARGET.gemm_moving_fmax
    bn_stats_fmax = TARGET.bn_stats_fmax
    total_available_sbuf_size = TARGET.sbuf_usable_bytes


__all__ = [
    *FUNCTIONS,
    "affine_range",
    "all",
    "arange",
    "bfloat16",
    "bool_",
    "broadcast_to",
    "copy",
    "device_print",
    "ds",
    "empty_like",
    "expand_dims",
    "float16",
    "float32",
    "float8_e4m3",
    "float8_e5m2",
    "full",
    "hbm",
    "int16",
    "int32",
    "int8",
    "load",
    "max",
    "mean",
    "mgrid",
    "min",
    "nc",
    "ndarray",
    "num_programs",
    "ones",
    "par_dim",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_hbm",
    "softmax",
    "spmd_dim",
    "static_range",
    "store",
    "sum",
    "tile_size",
    "uint16",
    "uint32",
    "uint8",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

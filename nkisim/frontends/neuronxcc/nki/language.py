"""`neuronxcc.nki.language`: the names that kernels use. What they do is in
`nkisim.frontends.neuronxcc.lowering`."""

from __future__ import annotations

from nkisim.frontends.neuronxcc import names as _names
from nkisim.frontends.neuronxcc.lowering.accumulate import all_reduce, loop_reduce
from nkisim.frontends.neuronxcc.lowering.control import (
    affine_range,
    nc,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    spmd_dim,
    static_range,
)
from nkisim.frontends.neuronxcc.lowering.elementwise import FUNCTIONS, where
from nkisim.frontends.neuronxcc.lowering.gather import atomic_rmw, gather_flattened
from nkisim.frontends.neuronxcc.lowering.matmul import matmul, transpose
from nkisim.frontends.neuronxcc.lowering.memory import declare as ndarray
from nkisim.frontends.neuronxcc.lowering.memory import (
    ds,
    empty_like,
    full,
    ones,
    par_dim,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from nkisim.frontends.neuronxcc.lowering.movement import (
    broadcast_to,
    copy,
    device_print,
    expand_dims,
    load,
    load_transpose2d,
    store,
)
from nkisim.frontends.neuronxcc.lowering.normalize import rms_norm, softmax
from nkisim.frontends.neuronxcc.lowering.random import dropout, rand, random_seed
from nkisim.frontends.neuronxcc.lowering.reduce import all, max, mean, min, prod, sum, var
from nkisim.frontends.neuronxcc.lowering.types import bfp16, finfo, fp32, static_cast, tfloat32
from nkisim.frontends.neuronxcc.nki import constants
from nkisim.frontends.neuronxcc.nki import keywords as _keywords
from nkisim.frontends.neuronxcc.tensors.ranges import MGrid, arange
from nkisim.ir.dtypes import (
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
from nkisim.ir.memory import Space
from nkisim.trace.tracer import machine_now

sbuf = Space.SBUF
psum = Space.PSUM
private_hbm = Space.PRIVATE_HBM
hbm = Space.PRIVATE_HBM
shared_hbm = Space.SHARED_HBM

mgrid = MGrid()


def gemm_grid():
    """The indices of the largest result of a matmul, and of its largest moving operand.

    Returns:
        What `nl.mgrid[0:128, 0:512]` gives, with the limits of the NeuronCore generation.
    """
    machine = machine_now()
    return mgrid[0 : machine.partitions, 0 : machine.gemm_moving_fmax]


def gemm_stationary_grid():
    """The indices of the largest stationary operand of a matmul: nl.mgrid[0:128, 0:128]."""
    machine = machine_now()
    return mgrid[0 : machine.partitions, 0 : machine.gemm_stationary_fmax]


globals().update(FUNCTIONS)


_LIMITS = {
    "pmax": "partitions",
    "psum_fmax": "psum_fmax",
    "gemm_stationary_fmax": "gemm_stationary_fmax",
    "gemm_moving_fmax": "gemm_moving_fmax",
    "bn_stats_fmax": "bn_stats_fmax",
    "total_available_sbuf_size": "sbuf_usable_bytes",
    "sbuf_min_align": "sbuf_min_align",
    "psum_min_align": "psum_min_align",
}


class _Limits(type):
    """Attributes that are looked up in the table of the NeuronCore generation."""

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *_LIMITS]


for _name, _field in _LIMITS.items():
    setattr(_Limits, _name, property(lambda cls, field=_field: getattr(machine_now(), field)))


class tile_size(metaclass=_Limits):
    """Limits of a tile on the NeuronCore generation for which kernels are traced."""


__all__ = [
    *FUNCTIONS,
    "affine_range",
    "all",
    "all_reduce",
    "arange",
    "atomic_rmw",
    "bfloat16",
    "bfp16",
    "bool_",
    "constants",
    "broadcast_to",
    "copy",
    "device_print",
    "dropout",
    "ds",
    "empty_like",
    "expand_dims",
    "finfo",
    "float16",
    "float32",
    "float8_e4m3",
    "float8_e5m2",
    "fp32",
    "full",
    "gather_flattened",
    "gemm_grid",
    "gemm_stationary_grid",
    "hbm",
    "int16",
    "int32",
    "int8",
    "load",
    "load_transpose2d",
    "loop_reduce",
    "matmul",
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
    "rand",
    "random_seed",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "softmax",
    "spmd_dim",
    "static_cast",
    "static_range",
    "store",
    "sum",
    "tfloat32",
    "tile_size",
    "transpose",
    "uint16",
    "uint32",
    "uint8",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

globals().update(_keywords.checked(globals(), __all__, "nl"))

__getattr__ = _names.missing("nl")

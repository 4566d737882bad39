"""`nki.isa`: the instructions. Each takes its destination first, and casts to its type."""

from collections.abc import Callable
from typing import Any

from nkisim.errors import KernelError
from nkisim.frontends.nki.arguments import checked_settings
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.surface.isa.copies import memset, tensor_copy, tensor_copy_predicated
from nkisim.frontends.nki.surface.isa.cores import core_barrier, sendrecv
from nkisim.frontends.nki.surface.isa.dma import dma_compute, dma_copy, dma_transpose
from nkisim.frontends.nki.surface.isa.enums import (
    NkiInstruction,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from nkisim.frontends.nki.surface.isa.gpsimd import (
    affine_select,
    get_nc_sub_version,
    get_nc_version,
    iota,
    local_gather,
    nc_n_gather,
    nonzero_with_count,
    sequence_bounds,
    tensor_partition_reduce,
)
from nkisim.frontends.nki.surface.isa.mx import nc_matmul_mx, quantize_mx
from nkisim.frontends.nki.surface.isa.random import (
    dropout,
    rand2,
    rand_get_state,
    rand_set_state,
    rng,
    set_rng_seed,
)
from nkisim.frontends.nki.surface.isa.registers import (
    register_alloc,
    register_load,
    register_move,
    register_store,
)
from nkisim.frontends.nki.surface.isa.scalar import activate2, activation, activation_reduce
from nkisim.frontends.nki.surface.isa.selects import exponential, range_select, select_reduce
from nkisim.frontends.nki.surface.isa.tensor_engine import nc_matmul, nc_transpose
from nkisim.frontends.nki.surface.isa.topk import topk
from nkisim.frontends.nki.surface.isa.vector.elementwise import (
    reciprocal,
    scalar_tensor_tensor,
    tensor_scalar,
    tensor_tensor,
)
from nkisim.frontends.nki.surface.isa.vector.reductions import (
    bn_aggr,
    bn_stats,
    tensor_reduce,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
    tensor_tensor_scan,
)
from nkisim.frontends.nki.surface.isa.vector.searches import max8, nc_find_index8, nc_match_replace8
from nkisim.frontends.nki.surface.isa.vector.shuffles import nc_stream_shuffle
from nkisim.frontends.nki.surface.names import missing

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

NkiValidationError = KernelError

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]

globals().update(checked_settings(globals(), __all__, "nisa"))

__getattr__: Callable[[str], Any] = missing("nki.isa")

"""`neuronxcc.nki.isa`: one function an instruction.

The functions check what the documentation asks of their operands and write the instruction down;
`nkisim.numerics.ops` computes it.
"""

from __future__ import annotations

from nkisim.frontends.neuronxcc import names as _names
from nkisim.frontends.neuronxcc.nki import keywords as _keywords
from nkisim.frontends.neuronxcc.nki.isa.constants import (
    dge_mode,
    dma_engine,
    engine,
    fp32,
    get_nc_version,
    gpsimd_engine,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from nkisim.frontends.neuronxcc.nki.isa.custom import builtin_custom_op
from nkisim.frontends.neuronxcc.nki.isa.elementwise import (
    activation,
    activation_reduce,
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_scalar,
    tensor_scalar_reduce,
    tensor_tensor,
)
from nkisim.frontends.neuronxcc.nki.isa.matmul import nc_matmul, nc_transpose
from nkisim.frontends.neuronxcc.nki.isa.movement import (
    dma_copy,
    dma_transpose,
    local_gather,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
)
from nkisim.frontends.neuronxcc.nki.isa.random import dropout
from nkisim.frontends.neuronxcc.nki.isa.reduce import (
    bn_aggr,
    bn_stats,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_tensor_scan,
)
from nkisim.frontends.neuronxcc.nki.isa.search import (
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_stream_shuffle,
    sequence_bounds,
)
from nkisim.frontends.neuronxcc.nki.isa.select import (
    affine_select,
    iota,
    range_select,
    select_reduce,
    tensor_copy_predicated,
)

__all__ = [
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "builtin_custom_op",
    "dge_mode",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sequence_bounds",
    "tensor_copy",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]

globals().update(_keywords.checked(globals(), __all__, "nisa"))

__getattr__ = _names.missing("nisa")

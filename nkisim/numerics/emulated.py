"""Tiles that keep more precision than their type has, as the SDK's simulators can do it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nkisim.ir.dtypes import F32, bfloat16, float8_e4m3, float8_e5m2
from nkisim.ir.memory import Role
from nkisim.ir.trace import Trace

# The types that NumPy does not have.
_EMULATED = frozenset(
    np.dtype(t) for t in (bfloat16, float8_e4m3, float8_e5m2, ml_dtypes.float8_e4m3fn)
)


def keep_fp32(trace: Trace) -> None:
    """Keep on-chip bf16 and fp8 tiles in fp32: a known issue of the simulator of `neuronxcc.nki`,
    and what `NKI_PRECISE_FP=0` asks that of `nki` for.

    Arguments, outputs and scratch tensors in HBM round as ever. So do tiles whose bits are looked
    at as another type.
    """
    recast = {
        t.buffer.number
        for instr in trace.instructions
        for t in (*instr.outs, *instr.tiles_in)
        if t.dtype != t.buffer.dtype
    }
    for buffer in trace.buffers:
        local = buffer.role is Role.LOCAL and buffer.space.on_chip
        if local and buffer.dtype in _EMULATED and buffer.number not in recast:
            buffer.stored = F32

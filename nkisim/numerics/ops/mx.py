"""Microscaling formats (NeuronCore-v4): groups of 8 partitions by 4 packed elements share a scale.

The scale of group g of a quadrant of 32 partitions is in the quadrant's partition g, as an 8-bit
exponent with a bias of 127.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Engine, Instruction, OpKind, opcode
from nkisim.ir.settings import Settings
from nkisim.numerics import blas
from nkisim.numerics.ops.cycles import OnEngine, Passes, Tiles, one_cycle
from nkisim.numerics.ops.float32 import write
from nkisim.numerics.ops.matmul import Product

_FORMATS = {
    "float8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), 15),
    "float8_e4m3fn": (np.dtype(ml_dtypes.float8_e4m3fn), 8),
}
_BIAS = 127


def scale_rows(partitions: int) -> np.ndarray:
    """For each partition of data, the partition of its scale."""
    p = np.arange(partitions)
    return p // 32 * 32 + p % 32 // 8


def unpack(packed: np.ndarray, fmt: str) -> np.ndarray:
    """(P, F) containers as (P, F, 4) fp32 numbers."""
    if fmt == "float4_e2m1fn":
        nibbles = packed[..., None] >> np.arange(0, 16, 4, dtype=np.uint16) & np.uint16(15)
        return nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(F32)
    flat = np.ascontiguousarray(packed)
    return flat.view(np.uint8).reshape(*flat.shape, 4).view(_FORMATS[fmt][0]).astype(F32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quantized(Settings):
    """The type of the packed elements."""

    format: str


@opcode(
    "quantize_mx",
    Engine.VECTOR,
    OpKind.ELEMENTWISE,
    settings=Quantized,
    cost=one_cycle,
    partial=True,
)
def _quantize(instr: Instruction) -> Callable:
    """Outputs (packed data, scales)."""
    dtype, emax = _FORMATS[instr.settings.format]
    largest = np.float32(ml_dtypes.finfo(dtype).max)

    def run(out: np.ndarray, scales: np.ndarray, data: np.ndarray) -> None:
        lanes = data.shape[0]
        x = data.reshape(lanes, -1, 4).astype(F32)
        columns = x.shape[1]
        top = np.abs(x).reshape(lanes // 8, 8, columns, 4).max(axis=(1, 3))
        exponent = np.frexp(top)[1] - 1
        code = np.where(top > 0, exponent - (emax - 1) + _BIAS, 0)
        code = np.clip(code, 0, 254)
        by = np.ldexp(np.float32(1), (_BIAS - code).astype(np.int32))
        scaled = np.clip(x * by.repeat(8, axis=0)[:, :, None], -largest, largest)
        bits = np.ascontiguousarray(scaled.astype(dtype)).view(np.uint8)
        np.copyto(out, bits.reshape(lanes, -1).view(np.uint32).reshape(out.shape))
        rows = scale_rows(lanes)[::8]
        scales[rows] = code.astype(np.uint8).reshape(len(rows), *scales.shape[1:])

    return run


def _cost(on: OnEngine) -> Passes:
    """One pass: the array takes four packed rows at a time."""
    return Passes(max(on.ins[1].n, min(on.timing.tensor.min_columns, on.ins[0].n)), 1)


def _flops(instr: Instruction, ins: Tiles, outs: Tiles) -> int:
    """A product and a sum for each pair of unpacked elements, four of which a container holds."""
    return 2 * 4 * ins[0].rows * ins[0].n * ins[1].n


@opcode("nc_matmul_mx", Engine.TENSOR, OpKind.PRODUCT, settings=Product, cost=_cost, flops=_flops)
def _matmul_mx(instr: Instruction) -> Callable:
    """stationary.T @ moving over partitions and packed elements, each scaled by its group.

    Operands: both, and for each 32 partitions the four rows of scales of the first, then of the
    second.
    """
    formats = instr.settings.formats
    fresh = instr.settings.fresh
    adds = instr.settings.accumulate

    def operand(packed: np.ndarray, scales: Sequence[np.ndarray], fmt: str) -> np.ndarray:
        lanes = packed.shape[0]
        values = unpack(packed.reshape(lanes, -1), fmt)
        codes = np.stack(scales).reshape(lanes // 8, -1).repeat(8, axis=0)
        by = np.ldexp(np.float32(1), codes.astype(np.int32) - _BIAS)
        scaled = values * by[:, :, None]
        return scaled.transpose(0, 2, 1).reshape(lanes * 4, -1)

    def run(out: np.ndarray, st: np.ndarray, mv: np.ndarray, *rest: np.ndarray) -> None:
        parts = st.shape[0] // 32  # each has scales of its own
        a = operand(st, rest[:parts], formats[0])
        b = operand(mv, rest[parts : 2 * parts], formats[1])
        product = blas.multiply(a, b).reshape(out.shape)
        if adds:
            before = out.astype(F32)
            if fresh is not None:
                before = np.where(fresh.reshape(out.shape), np.float32(0), before)
            product = product + before
        write(out, product)

    return run

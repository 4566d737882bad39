"""The Tensor Engine: matrix products accumulated in PSUM, and transposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Engine, Instruction, Missing, Needed, OpKind, opcode
from nkisim.ir.settings import Settings
from nkisim.numerics import blas
from nkisim.numerics.ops.cycles import Cycles, OnEngine, Passes, Tiles
from nkisim.numerics.ops.float32 import as_f32, write

_VECTOR_BLOCK = 32  # rows and columns


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Product(Settings):
    """Settings of a matmul."""

    rows: int = 1  # of the contraction in a partition
    accumulate: bool = False
    starts: bool = False
    transpose: bool = False  # whether the moving tile is the identity
    exact: bool = False  # whether the identity moves elements bit by bit
    onezero: tuple[bool, bool] = (False, False)  # whether operands hold ones and zeros only
    tile: tuple | None = None  # position and size in the array
    fresh: np.ndarray | None = None  # where an accumulation starts
    spread: tuple[bool, bool] = (False, False)  # by the plan
    formats: tuple[str, str] | None = None  # of microscaled operands


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TileTranspose(Settings):
    """Settings of a transpose."""

    spreads: bool = False  # whether NaN and infinities join the elements of their column
    axes: tuple[int, ...] = (1, 0)


def _matrix(x: np.ndarray, rows: int) -> np.ndarray:
    """fp32, two-dimensional, with one axis contiguous, as BLAS wants it."""
    m = x.reshape(rows, -1)
    if m.dtype != F32:
        return as_f32(m)
    item = m.itemsize
    return m if m.strides[1] == item or m.strides[0] == item else np.ascontiguousarray(m)


def _flow(instr: Instruction, missing: Missing) -> Missing:
    """A column of the stationary tile undefines a row of the product, one of the moving tile a
    column. Where the latter is the identity, elements only move (the documentation of nc_transpose
    calls it the same)."""
    if instr.settings.transpose and missing[1] is None and len(missing) == 2:
        return _flow_transpose(instr, missing)
    rows = columns = None
    out = instr.outs[0]
    union = np.zeros((out.shape[0], out.size // max(out.shape[0], 1)), bool)
    stationary, moving = missing[0], missing[1]
    k = instr.ins[0].shape[0]
    if stationary is not None:
        rows = stationary.reshape(k * instr.settings.rows, -1).any(axis=0)
        union |= rows[:, None]
    if moving is not None:
        columns = moving.reshape(k * instr.settings.rows, -1).any(axis=0)
        union |= columns[None, :]
    if len(missing) > 2 and missing[2] is not None:
        before = missing[2].reshape(union.shape)
        fresh = instr.settings.fresh
        union |= before if fresh is None else before & ~fresh.reshape(union.shape)
    return [union.reshape(out.shape) if union.any() else None]


def _cost(on: OnEngine) -> Passes:
    pe, rows = on.timing.tensor, on.instr.settings.rows
    stationary, moving = on.ins[:2]  # and what is added to
    columns = max(moving.n // rows, min(pe.min_columns, stationary.n // rows))
    passes = pe.transpose_passes if on.instr.settings.transpose else pe.fp32_passes
    return Passes(columns, passes if F32 in (stationary.dtype, moving.dtype) else 1)


def _flops(instr: Instruction, ins: Tiles, outs: Tiles) -> int:
    rows = instr.settings.rows
    return 2 * ins[0].rows * rows * ins[0].n // rows * (ins[1].n // rows)


def _reads(instr: Instruction, needed: Needed) -> list[np.ndarray]:
    (out,) = needed
    assert out is not None
    flat = out.reshape(out.shape[0], -1)
    stationary, moving, *rest = instr.tiles_in
    rows = instr.settings.rows * stationary.shape[0]
    parts = []
    for tile, wanted in ((stationary, flat.any(axis=1)), (moving, flat.any(axis=0))):
        whole = np.broadcast_to(wanted, (rows, wanted.size))
        parts.append(np.ascontiguousarray(whole).reshape(tile.shape))
    return parts + [out.reshape(t.shape) for t in rest]


@opcode(
    "nc_matmul",
    Engine.TENSOR,
    OpKind.PRODUCT,
    settings=Product,
    cost=_cost,
    flops=_flops,
    flow=_flow,
    reads=_reads,
)
def _nc_matmul(instr: Instruction) -> Callable:
    """stationary.T @ moving, in fp32; added to the output when `accumulate`,
    unless that `starts` the accumulation.

    With `rows` = 2 each partition holds two rows of the contraction (fp8 double row).
    Where `fresh` is true, an accumulation starts. With `exact` a product with the
    identity matrix moves the elements of the stationary tile, bit by bit.

    The plan sets `spread`: for each operand, whether a transpose by a product comes before
    it, which is left out.
    """
    rows, out_shape = instr.settings.rows, instr.outs[0].shape
    flat = len(out_shape) == 2 and instr.outs[0].dtype == F32
    undefined, fresh = instr.undefined, instr.settings.fresh
    spread = instr.settings.spread

    def product_of(st: np.ndarray, mv: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        st = st if undefined is None else np.where(undefined, st.dtype.type(0), st)
        contraction = st.shape[0] * rows  # of joined products, that of all
        a, b = _matrix(st, contraction), _matrix(mv, contraction)
        product = blas.multiply(a, b, out)
        # What is not finite in an operand makes a sum that is not: only then it has to spread.
        if spread is not None and not np.isfinite(product).all():
            a, b = (_spread(x.copy(), x) if s else x for x, s in zip((a, b), spread, strict=True))
            blas.multiply(a, b, product)
        return product

    if instr.settings.accumulate and not instr.settings.starts:

        def add(out: np.ndarray, st: np.ndarray, mv: np.ndarray, *_: np.ndarray) -> None:
            product = product_of(st, mv)
            if fresh is not None:
                np.copyto(out, 0, where=fresh.reshape(out.shape))
            np.add(out, product.reshape(out.shape), out=out, dtype=F32, casting="unsafe")

        return add

    exact = instr.settings.exact

    def multiply(out: np.ndarray, st: np.ndarray, mv: np.ndarray) -> None:
        if exact and _is_identity(mv.reshape(mv.shape[0], -1)):
            np.copyto(out, st.reshape(st.shape[0], -1).T.reshape(out.shape), casting="unsafe")
        elif flat:
            product_of(st, mv, out)
        else:
            write(out, product_of(st, mv).reshape(out.shape))

    return multiply


def _is_identity(m: np.ndarray) -> bool:
    return m.shape[0] == m.shape[1] and np.array_equal(m.astype(F32), np.identity(len(m), F32))


def _flow_transpose(instr: Instruction, missing: Missing) -> Missing:
    m = instr.undefined = missing[0]
    return [None if m is None else m.reshape(m.shape[0], -1).T.reshape(instr.outs[0].shape)]


def _spread(out: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Spread NaN as a transpose by matmul does, in place: in a row with a NaN or an infinity, all
    other elements become NaN."""
    odd = ~np.isfinite(moved)
    if odd.any():
        out[odd.sum(axis=1, keepdims=True) > odd] = np.nan
    return out


def _cost_transpose(on: OnEngine) -> Cycles | Passes:
    data = on.ins[0]
    if on.engine is not Engine.TENSOR:
        # [I] Blocks of 32 x 32, the largest that AWS documents, one after the other.
        blocks = -(-data.rows // _VECTOR_BLOCK) * -(-data.n // _VECTOR_BLOCK)
        if blocks == 1:
            return Cycles(1.0)
        again = (blocks - 1) * on.timing.vector.issue_cycles
        return Cycles(1.0, again, n=blocks * _VECTOR_BLOCK)
    pe = on.timing.tensor
    columns = max(data.rows, min(pe.min_columns, data.n))
    return Passes(columns, pe.transpose_passes if data.dtype == F32 else 1)


def _reads_transpose(instr: Instruction, needed: Needed) -> list[np.ndarray]:
    (out,) = needed
    assert out is not None
    tile, *rest = instr.tiles_in
    part = out.reshape(-1, tile.shape[0]).T.reshape(tile.shape)
    return [part, *(np.ones(t.shape, bool) for t in rest)]


@opcode(
    "nc_transpose",
    Engine.TENSOR,
    OpKind.TRANSPOSE,
    settings=TileTranspose,
    cost=_cost_transpose,
    flow=_flow_transpose,
    reads=_reads_transpose,
)
def _nc_transpose(instr: Instruction) -> Callable:
    """Partitions become the free axis and the flattened free axes become partitions.

    With `spreads`, as a product with the identity matrix does it: a NaN or infinity times zero is
    NaN, which joins the other elements of its column.
    """
    rows, undefined = instr.ins[0].shape[0], instr.undefined

    def move(out: np.ndarray, x: np.ndarray) -> None:
        np.copyto(out, x.reshape(rows, -1).T, casting="unsafe")

    def multiply(out: np.ndarray, x: np.ndarray) -> None:
        x = x if undefined is None else np.where(undefined, x.dtype.type(0), x)
        move(out, x)
        _spread(out, x.reshape(rows, -1).T)

    return multiply if instr.settings.spreads else move

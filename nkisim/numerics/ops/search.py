"""Instructions that look for values in a partition, and those that move whole partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.dtypes import cast_into
from nkisim.ir.instruction import (
    Engine,
    Instruction,
    Missing,
    OpKind,
    flow_by_axis,
    opcode,
    reads_by_axis,
)
from nkisim.ir.settings import Settings
from nkisim.numerics.ops.cycles import Cycles, OnEngine, one_cycle
from nkisim.numerics.ops.float32 import as_f32, write


def _rows(x: np.ndarray, absent: np.ndarray | None) -> np.ndarray:
    """fp32 rows, one a partition; NaN, which equals nothing, where a mask leaves elements out."""
    rows = as_f32(x)
    if absent is not None:
        rows = np.where(absent, np.float32(np.nan), rows)
    return rows.reshape(x.shape[0], -1)


def _absent(instr: Instruction) -> np.ndarray | None:
    return None if instr.where is None else ~instr.where


@opcode(
    "max8", Engine.VECTOR, OpKind.SEARCH, cost=one_cycle, flow=flow_by_axis, reads=reads_by_axis
)
def _max8(instr: Instruction) -> Callable:
    """The 8 largest values of each partition, largest first."""
    absent = _absent(instr)

    def run(out: np.ndarray, x: np.ndarray) -> None:
        rows = _rows(x, absent)
        if absent is not None:
            rows = np.nan_to_num(rows, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        rows = _with_largest(rows)
        top = np.partition(rows, rows.shape[1] - 8, axis=1)[:, -8:]
        write(out, np.sort(top, axis=1)[:, ::-1].reshape(out.shape))

    return run


def _with_largest(rows: np.ndarray) -> np.ndarray:
    """Some columns of long rows, the 8 largest among them: these are in groups of which no more
    than 7 others have a larger maximum. To partition whole rows takes ten times as long."""
    groups = rows.shape[1] // 32
    if groups < 16:
        return rows
    grouped = rows[:, : groups * 32].reshape(len(rows), 32, groups)
    best = np.argpartition(grouped.max(axis=1), groups - 8, axis=1)[:, None, -8:]
    chosen = np.take_along_axis(grouped, best, axis=2).reshape(len(rows), -1)
    return np.concatenate([chosen, rows[:, groups * 32 :]], axis=1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Replacement(Settings):
    """Settings of a replacing search: the value that replaces those that are found."""

    imm: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopK(Settings):
    """Settings of topk: the number of values of a group of 16 partitions."""

    n: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shuffle(Settings):
    """Settings of a shuffle: the source of each partition."""

    moves: tuple  # (targets, sources)


@opcode("nc_find_index8", Engine.VECTOR, OpKind.SEARCH, cost=one_cycle, flow=flow_by_axis)
def _find_index8(instr: Instruction) -> Callable:
    """For each of 8 values of a partition, where it first stands; one that was asked for before
    gets its next place. All bits are set where there is none (left)."""
    absent = _absent(instr)
    nowhere = np.iinfo(instr.outs[0].dtype).max

    def run(out: np.ndarray, data: np.ndarray, vals: np.ndarray) -> None:
        rows, wanted = _rows(data, absent), _rows(vals, None)
        lanes, given = np.arange(rows.shape[0]), np.zeros(rows.shape, bool)
        found = np.empty(wanted.shape, np.int64)
        for i, value in enumerate(wanted.T):
            same = (rows == value[:, None]) & ~given
            at = same.argmax(axis=1)
            here = same[lanes, at]
            given[lanes[here], at[here]] = True
            found[:, i] = np.where(here, at, nowhere)
        np.copyto(out, found.reshape(out.shape), casting="unsafe")

    return run


@opcode(
    "nc_match_replace8",
    Engine.VECTOR,
    OpKind.SEARCH,
    settings=Replacement,
    cost=one_cycle,
    flow=flow_by_axis,
    in_place=True,
)
def _match_replace8(instr: Instruction) -> Callable:
    """Replace the first occurrence of each of 8 values, from the last value to the first."""
    absent = _absent(instr)
    imm = np.float32(instr.settings.imm)

    def run(out: np.ndarray, *tiles: np.ndarray) -> None:
        *index, data, vals = tiles
        rows, wanted = _rows(data, absent).copy(), _rows(vals, None)
        lanes = np.arange(rows.shape[0])
        hit = np.zeros(rows.shape, bool)
        places = np.zeros(wanted.shape, np.uint32)
        for i in reversed(range(wanted.shape[1])):
            same = rows == wanted[:, i, None]
            at = same.argmax(axis=1)
            here = same[lanes, at]
            rows[lanes[here], at[here]] = imm
            hit[lanes[here], at[here]] = True
            places[:, i] = at
        if index:
            np.copyto(index[0], places.reshape(index[0].shape), casting="unsafe")
        values = np.where(hit.reshape(data.shape), imm, as_f32(data))
        write(out, values, instr.where)

    return run


def _flow_topk(instr: Instruction, missing: Missing) -> Missing:
    """Definedness of topk: the result of a group of 16 partitions is undefined if a value of it
    is."""
    gap = missing[0]
    if gap is None:
        return [None, None]
    lanes, columns = gap.shape
    used = np.add.outer(np.arange(lanes) % 16, 16 * np.arange(columns)) < instr.settings.n
    lost = np.repeat((gap & used).reshape(lanes // 16, -1).any(axis=1), 16)
    return [np.broadcast_to(lost[:, None], out.shape) if lost.any() else None for out in instr.outs]


def _cost_topk(on: OnEngine) -> Cycles:
    """Published: 4 n + K cycles, n values in the 16 partitions of a group (API reference, 0.6)."""
    n = max(o.n for o in (*on.ins, *on.outs))
    return Cycles((4 * on.instr.settings.n + on.outs[0].n) / n)


@opcode("topk", Engine.GPSIMD, OpKind.SEARCH, settings=TopK, cost=_cost_topk, flow=_flow_topk)
def _topk(instr: Instruction) -> Callable:
    """The largest values of each group of 16 partitions, ascending, and their places."""
    n = instr.settings.n

    def run(values: np.ndarray, places: np.ndarray, data: np.ndarray) -> None:
        lanes, k = values.shape
        rows = as_f32(data).reshape(lanes // 16, 16, -1).transpose(0, 2, 1)
        rows = rows.reshape(lanes // 16, -1)[:, :n]
        # A stable sort from the last place to the first: of equal values the first is the largest.
        at = n - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, -k:]
        for out, found, rest in (
            (values, np.take_along_axis(rows, at, axis=1), np.nan),
            (places, at, 0xFFFFFFFF),
        ):
            snake = np.full((lanes // 16, 16 * k), rest, found.dtype)
            snake[:, :k] = found
            snake = snake.reshape(-1, k, 16).transpose(0, 2, 1).reshape(lanes, k)
            np.copyto(out, snake, casting="unsafe")

    return run


def _flow_shuffle(instr: Instruction, missing: Missing) -> Missing:
    """A partition is undefined where the one that it gets is."""
    out = instr.outs[0]
    source, *before = missing
    union = np.zeros(out.shape, bool) if not before or before[0] is None else before[0].copy()
    targets, sources = (list(x) for x in instr.settings.moves)
    union[targets] = False if source is None else source[sources]
    return [union if union.any() else None]


@opcode(
    "nc_stream_shuffle",
    Engine.VECTOR,
    OpKind.GATHER,
    settings=Shuffle,
    cost=one_cycle,
    flow=_flow_shuffle,
)
def _stream_shuffle(instr: Instruction) -> Callable:
    """dst[i] = src[shuffle[i]] within each quadrant of 32 partitions."""
    targets, sources = (list(x) for x in instr.settings.moves)
    where = None if instr.where_out is None else instr.where_out[targets]

    def run(dst: np.ndarray, src: np.ndarray, *_: np.ndarray) -> None:
        moved = src[sources]
        if where is not None:
            moved = np.where(where, moved, dst[targets])
        dst[targets] = moved

    return run


@opcode("sequence_bounds", Engine.GPSIMD, OpKind.SEARCH, cost=one_cycle)
def _sequence_bounds(instr: Instruction) -> Callable:
    """First index, and index behind the last, of the run of equal ids around each element."""

    def run(out: np.ndarray, ids: np.ndarray) -> None:
        row = ids.reshape(-1)
        n = row.size
        edge = np.flatnonzero(row[1:] != row[:-1]) + 1
        starts, ends = np.concatenate(([0], edge)), np.concatenate((edge, [n]))
        runs = ends - starts
        first, last = np.repeat(starts, runs), np.repeat(ends, runs)
        padding = row == 0
        bounds = np.stack([np.where(padding, n, first), np.where(padding, -1, last)])
        cast_into(out, bounds.reshape(out.shape).astype(np.int32))

    return run

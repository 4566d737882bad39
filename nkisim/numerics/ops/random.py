"""The random number generator: uniform numbers and dropout, the same in every run.

The hardware's generator is not documented. Here it is Philox, counted on by a state of two 32-bit
words: the seed and how many instructions have drawn from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine, Instruction, OpKind, flow_first, opcode
from nkisim.ir.settings import Settings
from nkisim.numerics.ops.cycles import one_cycle
from nkisim.numerics.ops.float32 import as_f32, write


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Uniform(Settings):
    """The bounds."""

    low: float
    high: float


def draw(state: np.ndarray, shape: tuple[int, ...], stream: int) -> np.ndarray:
    """Uniform fp32 numbers in [0, 1), and the state moved on."""
    seed, count = (int(v) & 0xFFFFFFFF for v in state.reshape(-1))
    bits = np.random.Philox(key=[seed << 32 | stream, count])
    state.reshape(-1)[1] = (count + 1) & 0x7FFFFFFF
    return np.random.Generator(bits).random(shape, dtype=np.float32)


@opcode("random_seed", Engine.VECTOR, OpKind.RANDOM, cost=one_cycle)
def _random_seed(instr: Instruction) -> Callable:
    """Set the state to (seed, 0)."""
    seed = instr.ins[0]
    number = None if isinstance(seed, AccessPattern) else int(seed) & 0xFFFFFFFF

    def run(state: np.ndarray, *tiles: np.ndarray) -> None:
        value = int(tiles[0].reshape(-1)[0]) & 0xFFFFFFFF if number is None else number
        state[...] = np.array([value, 0], np.uint32).view(np.int32)

    return run


@opcode("rand", Engine.VECTOR, OpKind.RANDOM, cost=one_cycle)
def _rand(instr: Instruction) -> Callable:
    """Outputs (numbers, state)."""
    stream = instr.program

    def run(out: np.ndarray, state: np.ndarray, before: np.ndarray) -> None:
        write(out, draw(state, out.shape, stream), instr.where)

    return run


@opcode("dropout", Engine.VECTOR, OpKind.RANDOM, cost=one_cycle, flow=flow_first, in_place=True)
def _dropout(instr: Instruction) -> Callable:
    """Outputs (data with zeros at random, state). The probability may differ by partition."""
    stream, where = instr.program, instr.where
    prob = instr.ins[1]
    number = None if isinstance(prob, AccessPattern) else np.float32(prob)

    def run(out: np.ndarray, state: np.ndarray, x: np.ndarray, *rest: np.ndarray) -> None:
        p = as_f32(rest[0]) if number is None else number
        keep = draw(state, out.shape, stream) >= p
        if out.dtype == x.dtype:
            values = np.where(keep, x, np.zeros((), x.dtype))
            np.copyto(out, values, where=True if where is None else where)
        else:
            write(out, np.where(keep, as_f32(x), np.float32(0)), where)

    return run


@opcode("uniform", Engine.VECTOR, OpKind.RANDOM, settings=Uniform, cost=one_cycle)
def _uniform(instr: Instruction) -> Callable:
    """Outputs (numbers in [low, high), the state moved on)."""
    low, high, stream = instr.settings.low, instr.settings.high, instr.program

    def run(out: np.ndarray, state: np.ndarray, before: np.ndarray) -> None:
        write(out, np.float32(low) + draw(state, out.shape, stream) * np.float32(high - low))

    return run


@opcode("random_bits", Engine.VECTOR, OpKind.RANDOM, cost=one_cycle)
def _random_bits(instr: Instruction) -> Callable:
    """Outputs (random bits, the state moved on)."""
    stream = instr.program

    def run(out: np.ndarray, state: np.ndarray, before: np.ndarray) -> None:
        wide = np.floor(draw(state, (*out.shape, 2), stream) * 65536).astype(np.uint32)
        bits = wide[..., 0] << np.uint32(16) | wide[..., 1]
        np.copyto(out, bits.astype(f"u{out.itemsize}").view(out.dtype))

    return run

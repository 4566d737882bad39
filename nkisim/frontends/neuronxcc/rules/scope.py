"""A tile lives in the trace, and in the loop iteration, that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import ScopeError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def check_scope(instr: Instruction, tiles: tuple[Tensor, ...], trace: Trace) -> ScopeError | None:
    """On-chip operands were made outside of loops, or in an iteration that still runs.

    static_range and Python's own loops are unrolled while tracing and open no scope here.
    """
    now = instr.loops
    for tensor in tiles:
        then = tensor.buffer.loops
        if not then or then is now or not tensor.buffer.space.on_chip or now[: len(then)] == then:
            continue
        left = _left(then, now, trace)
        if left is not None:
            return _error(instr, tensor.buffer, then[left], now[left : left + 1], trace)
    return None


def _left(then: tuple, now: tuple, trace: Trace) -> int | None:
    """The outermost level of `then` whose iteration of an NKI loop is over."""
    loops, depth, over = trace.loops, len(now), False
    for k, own in enumerate(then):
        over = over or k >= depth or now[k] != own
        if over and not loops[own[0]].is_unrolled:
            return k
    return None


def _error(instr: Instruction, buffer: Buffer, own: tuple, other: tuple, trace: Trace):
    number, iteration = own
    loop = trace.loops[number]
    here = (
        f"in iteration {other[0][1]} of the same loop"
        if other and other[0][0] == number
        else "after that iteration has ended"
    )
    made = f" at {buffer.location}" if buffer.location else ""
    return ScopeError(
        f"{instr.label} uses {buffer!r}, made{made} in iteration {iteration} of an "
        f"nl.{loop.kind} loop, {here}",
        rule="a tile made in a loop iteration belongs to it; `x = x + 1` in a loop makes a new x",
        fix="declare the tile before the loop and write into it: x[...] = x + 1",
        code="err_local_variable_used_out_of_scope",
    )

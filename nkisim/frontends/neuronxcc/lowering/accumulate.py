"""Reductions over more than one tile: over loop iterations, and over the instances of a grid."""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType
from typing import Any

from nkisim.errors import DTypeError, ParameterError, caller
from nkisim.frontends.neuronxcc.lowering.elementwise import elementwise, operator_name
from nkisim.frontends.neuronxcc.lowering.memory import declare, ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.lowering.operands import one_of, require_tile
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import F32, as_dtype
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Space
from nkisim.numerics import alu
from nkisim.trace.tracer import current

_BINARY = alu.ALU_OPERATORS - alu.UNARY_ALU


# -- over loops


def loop_reduce(
    x: Tensor,
    op: Any,
    loop_indices: Any,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`destination = op(destination, x)` in each iteration of the loops that `loop_indices` names.

    The destination is what the call is assigned to. It exists before the loop, with its initial
    value: a name (`b = nl.loop_reduce(...)`) or a part of a tile (`t[i] = nl.loop_reduce(...)`).
    A destination that nothing wrote yet starts with the first `x`, as in the kernels that the
    compiler prints.
    The iterations add up, so an affine_range loop may run them in any order.

    Args:
        x: on-chip tile; its shape broadcasts to the destination's.
        op: a binary operator, as an nl or NumPy function.
        loop_indices: the index of an enclosing loop, or a list or tuple of them.
        dtype: type of the result; must be the destination's if given.
        mask: where to reduce; elsewhere the destination stays as it is.

    Returns:
        The destination.

    Raises:
        ParameterError: the operator is not binary, an index is not that of an enclosing loop, or
            the call is not assigned to an existing tile.
        DTypeError: `dtype` is not the destination's type.
    """
    what = "nl.loop_reduce"
    x = require_tile(what, x)
    name = one_of(what, operator_name(op), _BINARY)
    _check_loops(what, loop_indices)
    wanted = None if dtype is None else as_dtype(dtype)

    def into(target: Tensor) -> None:
        if wanted not in (None, target.dtype):
            raise DTypeError(
                f"{what} with dtype={wanted} into {target.describe()}",
                rule="the result is written into the destination, and has its type",
                fix="drop dtype=, or declare the destination with this type",
            )
        if x.shape == target.shape and current().checker.untouched(target):
            current().emit("tensor_copy", (target,), (x,), mask=mask, accumulate=True, op=name)
        else:
            elementwise(name, target, x, out=target, mask=mask)

    frame = caller()
    assigned = None if frame is None else _name_assigned(frame)
    if assigned is None:  # an indexed assignment, which asks for it
        result = declare(x.shape, x.dtype if wanted is None else wanted, name="loop_reduce result")
        current().unassigned[result.buffer.number] = into
        return result
    before = frame.f_locals.get(assigned, frame.f_globals.get(assigned))
    if not isinstance(before, Tensor) or not before.space.on_chip:
        raise ParameterError(
            f"{what} is assigned to '{assigned}', which "
            + ("does not exist yet" if before is None else "is not an on-chip tile"),
            rule="the destination is an operand, too: destination = op(destination, x)",
            fix=f"declare it before the loop, e.g. {assigned} = nl.zeros(...), with the neutral "
            "value of the operator",
        )
    into(before)
    return before


def _check_loops(what: str, loop_indices: Any) -> None:
    given = loop_indices if isinstance(loop_indices, list | tuple) else (loop_indices,)
    running = current().running
    for index in given or (None,):
        if as_int(index) not in running:
            raise ParameterError(
                f"{what}: loop_indices={loop_indices!r}",
                rule="they are the indices of loops around the call that nl.affine_range runs",
                fix="pass the loop variable: for k in nl.affine_range(n): "
                "b = nl.loop_reduce(x, op=nl.add, loop_indices=[k])",
            )


def _name_assigned(frame: FrameType) -> str | None:
    """The variable that the call now running in `frame` is assigned to; None when it is none.

    Python does not tell a function what becomes of its result, and here that is an operand. The
    instruction after the call does tell.
    """
    return _stored_after(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=256)
def _stored_after(code: CodeType, offset: int) -> str | None:
    """The variable that the instruction behind `offset` stores to; None when it is none."""
    after = next(i for i in dis.get_instructions(code) if i.offset > offset)
    if after.opname not in _STORES:
        return None
    return after.argval if isinstance(after.argval, str) else after.argval[0]


_STORES = frozenset(
    {"STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"}
    | {"STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}  # two in one, from Python 3.13 on
)


# -- over instances


def all_reduce(
    x: Tensor,
    op: Any,
    program_axes: Any,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Reduce a tile over the instances of the launch grid: each gets the result.

    Each instance stores its tile in HBM, waits for the others, and loads and combines the tiles of
    its group, in the order of the program ids.

    Args:
        x: on-chip tile, of one shape and type in all instances.
        op: a binary operator, as an nl or NumPy function.
        program_axes: the grid axis, or axes, to reduce along. Instances that differ on these only
            are a group.
        dtype: of the result; x's when None. fp32 inside, except for 32-bit
            integers.
        mask: which elements to reduce; the others are undefined.
        parallel_reduce: a hint on memory against speed; it changes no result.
        asynchronous: must be False: no documented function waits for the result.

    Returns:
        An SBUF tile of x's shape.

    Raises:
        ParameterError: the operator is not binary, an axis is not one of the grid's,
            `asynchronous` is set, or instances call it different numbers of times.
        RaceError: instances pass different shapes or types.
    """
    what = "nl.all_reduce"
    x = require_tile(what, x)
    name = one_of(what, operator_name(op), _BINARY)
    if asynchronous:
        raise ParameterError(
            f"{what} with asynchronous=True",
            rule="the result may be read after a synchronisation only, and the documented API has "
            "no function that waits",
            fix="drop asynchronous=",
        )
    tracer = current()
    group = _group(what, program_axes)
    if x.space is Space.PSUM:  # DMA reads SBUF
        x = copy(x, mask=mask)
    meeting = tracer.meeting(what)
    slots = tracer.exchange(meeting, (tracer.trace.grid.size, *x.shape), x.dtype)
    tracer.emit("dma_copy", (slots[tracer.program],), (x,), mask=mask)
    tracer.meet(meeting)
    result = x.dtype if dtype is None else as_dtype(dtype)
    inside = x.dtype if x.dtype in alu.WIDE or alu.ALU[name].kind == "bits" else F32
    total = None
    for member in group:
        part = ndarray(x.shape, x.dtype)
        tracer.emit("dma_copy", (part,), (slots[member],), mask=mask)
        if total is None:
            total = part
        else:
            kind = result if member == group[-1] else inside
            total = elementwise(name, total, part, dtype=kind, mask=mask)
    return total if total.dtype == result else copy(total, dtype=result, mask=mask)


def _group(what: str, program_axes: Any) -> list[int]:
    """The instances whose ids agree with this one's on all but `program_axes`, in order."""
    tracer = current()
    grid = tracer.trace.grid
    given = program_axes if isinstance(program_axes, list | tuple) else (program_axes,)
    axes = [as_int(a) for a in given]
    if len(grid.shape) == 1 and axes == [tracer.program]:
        axes = [0]  # kernels of AWS pass the id, nl.program_id(0), where there is but one axis
    if not axes or any(a is None or not 0 <= a < len(grid.shape) for a in axes):
        raise ParameterError(
            f"{what}: program_axes={program_axes!r} in a kernel launched "
            + (f"on a {grid} grid" if grid.shape else "without a grid"),
            rule="they are dimensions of the launch grid",
            fix="launch with a grid, kernel[n, m](...), and pass 0, 1 or (0, 1)",
        )

    def rest(program: int) -> list[int]:
        return [i for d, i in enumerate(grid.coordinates(program)) if d not in axes]

    mine = rest(tracer.program)
    return [p for p in range(grid.size) if rest(p) == mine]

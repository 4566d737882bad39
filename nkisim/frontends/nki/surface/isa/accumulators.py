"""The accumulators of the Scalar and Vector Engines: an fp32 register a partition, in which an
instruction reduces its result and later ones go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nkisim.errors import ParameterError
from nkisim.frontends.nki.operands import vector
from nkisim.frontends.nki.ops import Operator
from nkisim.frontends.nki.session import Recipe, Session
from nkisim.frontends.nki.surface.isa.copies import memset, tensor_copy
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, reduce_cmd
from nkisim.frontends.nki.surface.isa.vector.elementwise import tensor_scalar
from nkisim.frontends.nki.tensors.tensor import NkiTensor

_MULTIPLY = Operator("multiply")


class Accumulated(NamedTuple):
    """A call that reduces its result.

    Attributes:
        unit: "scalar" or "vector", whose accumulators it uses.
        key: the operation and its settings.
        dst: the tile that it writes.
        ins: the tensors that it reads.
        command: what it does with the accumulators.
        result: a (P, 1) tile that gets their values; None for none.
        start: with load_reduce, what they begin with.
        negate: write the negative of the values.
    """

    unit: str
    key: tuple
    dst: NkiTensor
    ins: tuple[NkiTensor, ...]
    command: reduce_cmd
    result: NkiTensor | None = None
    start: NkiTensor | float | None = None
    negate: bool = False


def accumulate(
    session: Session,
    call: Accumulated,
    lower: Callable[[bool], Recipe],
) -> NkiInstruction:
    """Write down a call with a reduction.

    Args:
        session: what records the kernel.
        call: the call.
        lower: given whether the reduction goes on from the accumulators, what the call lowers to,
            without the tiles of the reduction.
    """
    dst, command = call.dst, call.command
    lanes = dst.shape[0]
    at = dst.offset // max(dst._layout.row, 1)
    kept = session.state_tensor(f"{call.unit} accumulators", (128, 1), "float32")
    kept = kept[at : at + lanes]
    if command not in (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce):
        raise ParameterError(
            f"{call.key[0]} with reduce_cmd.{command.name}",
            rule="it reduces: reset_reduce, reduce or load_reduce",
            fix="name one of these",
        )
    before: list[NkiTensor] = []
    if command is reduce_cmd.load_reduce:
        if isinstance(call.start, NkiTensor):
            tensor_copy(kept, call.start)
        else:
            memset(kept, float(call.start or 0.0))
    if command is not reduce_cmd.reset_reduce:
        before = [kept]
    direct = call.result is not None and not call.negate
    results = [kept, call.result] if direct else [kept]
    tensors = (dst, *results, *call.ins, *before)
    key = (*call.key, command, direct)
    instr = session.issue(
        key, tensors, lambda: _reducing(call, lower(bool(before)), results, before)
    )
    if call.negate and call.result is not None:
        tensor_scalar(call.result, kept, _MULTIPLY, -1.0)
    return NkiInstruction(instr)


def _reducing(
    call: Accumulated, plain: Recipe, results: list[NkiTensor], before: list[NkiTensor]
) -> Recipe:
    """What a call lowers to, with the tiles that get the reduction, and those it goes on from."""
    outs, ins = plain.walks[: plain.outs], plain.walks[plain.outs :]
    lanes, axes = call.dst.shape[0], len(outs[0][0])
    name = f"nisa.{call.key[0]}"
    more = [vector(name, "reduce_res", t, lanes, axes) for t in results]
    start = [vector(name, "accumulator", t, lanes, axes) for t in before]
    operands = (*(plain.operands or [None] * len(ins)), *[None] * len(start))
    model = plain.model
    return Recipe(
        model.opcode, model.engine, [*outs, *more], [*ins, *start], operands, model.settings
    )

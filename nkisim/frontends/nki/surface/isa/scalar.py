"""The Scalar Engine: activation functions."""

from __future__ import annotations

from typing import Any

from nkisim.errors import DTypeError, ParameterError
from nkisim.frontends.nki.operands import (
    check_float32,
    check_generation,
    check_on_chip,
    same_domain,
    vector,
)
from nkisim.frontends.nki.ops import ACTIVATIONS, NAMES, op_name
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.accumulators import Accumulated, accumulate
from nkisim.frontends.nki.surface.isa.copies import memset, settled_pair, tensor_copy
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, reduce_cmd
from nkisim.frontends.nki.surface.isa.vector.checks import constant, no_packed
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.machine import Machine
from nkisim.numerics.ops.chain import Activation, ActivationReduce
from nkisim.numerics.ops.generated import Activation2


def activation(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    bias: NkiTensor | float | None = None,
    scale: NkiTensor | float = 1.0,
    reduce_op: Any = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data * scale + bias), and its sum over the free axes if asked for.

    Args:
        dst, data: tiles with equally many partitions and elements per partition.
        op: an activation function of `nki.language`.
        bias: a (P, 1) tile; a number on NeuronCore-v3 and later; None for 0.
        scale: a number, or a (P, 1) float32 tile.
        reduce_op: nl.add.
        reduce_res: a (P, 1) tile that gets the accumulators.
        reduce_cmd: what is done with the accumulators: reset, reduce, reset_reduce, or idle.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different sizes, or a bias, a scale or a reduce_res that is not one
            element a partition.
        DTypeError: a scale that is a tile and not float32, or a packed type.
        ParameterError: an op that is no activation function, a reduce_op other than nl.add, a
            reduce_cmd that does not go with it, or on NeuronCore-v2 a bias that is a number.
    """
    session = current()
    if dst._indirect is not None or data._indirect is not None:
        dst, data = settled_pair(session, dst, data)
    by, plus = type(scale) is NkiTensor, type(bias) is NkiTensor
    ins: tuple = (data,)
    if by:
        ins = (data, scale)
    if plus:
        ins = (*ins, bias)
    key = (
        "activation",
        op,
        None if by else scale or str(scale),
        None if plus else bias or str(bias),
    )
    command = reduce_cmd.name
    if reduce_op is not None and NAMES.get(reduce_op) != "add":
        raise ParameterError(
            f"nisa.activation: reduce_op {getattr(reduce_op, '__name__', reduce_op)}",
            rule="the accumulators of the Scalar Engine add",
            fix="pass reduce_op=nl.add, or reduce with nisa.tensor_reduce",
        )
    if command in ("idle", "reset"):
        instr = session.issue(key, (dst, *ins), lambda: _activation(dst, op, data, bias, scale))
        if command == "reset" or reduce_res is not None:
            _read_out(session, dst, reduce_res, command == "reset")
        return NkiInstruction(instr)

    def lower(accumulates: bool) -> Recipe:
        if reduce_op is None:
            raise ParameterError(
                f"nisa.activation: no reduce_op with reduce_cmd.{command}",
                rule="the accumulators of the Scalar Engine add",
                fix="pass reduce_op=nl.add",
            )
        plain = _activation(dst, op, data, bias, scale)
        settings = ActivationReduce(
            op=plain.model.settings.op, reduce_op="add", accumulate=accumulates
        )
        return Recipe(
            "activation_reduce",
            Engine.SCALAR,
            plain.walks[:1],
            plain.walks[1:],
            plain.operands,
            settings,
        )

    call = Accumulated("scalar", (*key, reduce_op), dst, ins, reduce_cmd, reduce_res)
    return accumulate(session, call, lower)


def _read_out(session: Any, dst: NkiTensor, result: NkiTensor | None, resets: bool) -> None:
    """Copy the accumulators out, or set them to 0."""
    at, lanes = dst.offset // max(dst._layout.row, 1), dst.shape[0]
    if result is not None:
        vector("nisa.activation", "reduce_res", result, lanes, 2)
    if not resets and (session.program, "scalar accumulators") not in session.state:
        raise ParameterError(
            "reduce_res reads accumulators to which nothing has been added: reduce_cmd is idle",
            rule="reduce_cmd says what an instruction does with the accumulators; idle, its "
            "default, leaves them as they are",
            fix="pass reduce_cmd=nisa.reduce_cmd.reset_reduce, with reduce_op=nl.add",
        )
    kept = session.state_tensor("scalar accumulators", (128, 1), "float32")[at : at + lanes]
    if resets:
        memset(kept, 0.0)
    if result is not None:
        tensor_copy(result, kept)


def _activation(dst, op, data, bias, scale, call: str = "nisa.activation") -> Recipe:
    machine = current().trace.machine
    check_on_chip(call, dst=dst, data=data)
    no_packed(call, dst=dst, data=data)
    name = op_name(call, op, ACTIVATIONS, machine)
    if name == "prelu":
        raise ParameterError(
            f"{call}: nl.prelu without a slope",
            rule="nl.prelu takes its slope from relu_param of nisa.activate2",
            fix="use nisa.activate2(..., op=nl.prelu, relu_param=slope)",
        )
    out, source = same_domain(call, dst, data)
    walks, operands = [source], [None]
    for which, x in (("scale", scale), ("bias", bias)):
        if which == "bias" and not machine.abilities.number_as_bias:
            _check_old_bias(call, name, x, machine)
        if isinstance(x, NkiTensor):
            check_on_chip(call, **{which: x})
            if which == "scale":
                check_float32(call, scale=x)
            walks.append(vector(call, which, x, data.shape[0], len(source[0])))
            operands.append(None)
        else:
            operands.append(0.0 if x is None else float(x))
    return Recipe("activation", Engine.SCALAR, [out], walks, tuple(operands), Activation(op=name))


def _check_old_bias(call: str, name: str, bias: Any, machine: Machine) -> None:
    """Check the bias of an activation on NeuronCore-v2, which adds a (P, 1) tile (nisa.activation,
    SDK 2.32), but a number with nl.copy: its compiler says "[NCC_IBVF043] Activation
    function with type Copy only supports immediate bias". Its reciprocal has no bias (NKI API
    common fields, SDK 2.26).

    Raises:
        ParameterError: a bias that it does not add.
    """
    tile = isinstance(bias, NkiTensor)
    if bias is None or (not tile and bias == 0):
        return
    given = bias.describe() if tile else repr(bias)
    if name == "reciprocal" and not machine.abilities.reciprocal_bias:
        rule, fix = "its reciprocal takes no bias", "add it first, with nisa.tensor_scalar"
    elif name == "copy" and tile:
        rule = "with nl.copy it adds a number only (NCC_IBVF043)"
        fix = "add the tile with nisa.tensor_scalar(dst, data, nl.add, tile)"
    elif name != "copy" and not tile:
        rule, fix = "it adds a (P, 1) tile", "fill a (P, 1) tile with nisa.memset"
    else:
        return
    raise ParameterError(
        f"{call}: bias={given} with nl.{name} on {machine.name}",
        rule=f"{rule}; NeuronCore-v3 and later take both",
        fix=fix,
    )


def activation_reduce(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    reduce_op: Any,
    reduce_res: NkiTensor,
    bias: NkiTensor | float | None = None,
    scale: NkiTensor | float = 1.0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data * scale + bias), and reduce_res = its sum over the free axes.

    Args:
        dst, op, data, bias, scale, name: as for `activation`.
        reduce_op: nl.add.
        reduce_res: a (P, 1) tile.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different sizes, or a bias, a scale or a reduce_res that is not one
            element a partition.
        DTypeError: a scale that is a tile and not float32, or a packed type.
        ParameterError: an op that is no activation function, or a reduce_op other than nl.add.
    """
    return activation(
        dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd.reset_reduce, name
    )


_PAIRS = frozenset(
    {("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass")}
    | {("subtract", "bypass"), ("bypass", "bypass")}
)


def activate2(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    imm0: NkiTensor | float,
    imm1: NkiTensor | float,
    op0: Any,
    op1: Any,
    relu_param: float = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op((data op0 imm0) op1 imm1), and its reduction (NeuronCore-v4).

    Args:
        dst, data: tiles with equally many partitions and elements per partition.
        op: an activation function.
        imm0, imm1: numbers, or (P, 1) tiles of one dtype.
        op0, op1: nl.multiply, nl.add, nl.subtract or nl.bypass, in one of the documented pairs.
        relu_param: the slope of nl.prelu for negative inputs.
        reverse0, reverse1: operand first.
        reduce_op: nl.add, nl.maximum, nl.minimum, nl.abs_max or nl.abs_min.
        reduce_res: a (P, 1) tile that gets the accumulators.
        reduce_cmd: what is done with the accumulators.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different sizes, or an operand that is neither a number nor one
            element a partition.
        DTypeError: imm0 and imm1 that are tiles of two types, or a packed type.
        ParameterError: on a NeuronCore before v4, operators that do not go together, or a
            reduce_cmd that does not reduce.
    """
    session = current()
    call = "nisa.activate2"
    check_generation(call, session.trace.machine, "use nisa.activation")
    names = tuple(NAMES.get(o, "bypass" if o is None else repr(o)) for o in (op0, op1))
    if names not in _PAIRS:
        raise ParameterError(
            f"{call}: op0 and op1 are {names}",
            rule="they are one of " + ", ".join(map(str, sorted(_PAIRS))),
            fix="use one of these pairs",
        )
    tensors = [x for x in (imm0, imm1) if isinstance(x, NkiTensor)]
    if len({t.dtype for t in tensors}) > 1:
        raise DTypeError(
            f"{call}: imm0 is {tensors[0].describe()}, imm1 {tensors[1].describe()}",
            rule="imm0 and imm1 have one dtype when both are tiles",
            fix="convert one with nisa.tensor_copy",
        )
    key = (
        "activate2",
        op,
        op0,
        op1,
        *[None if isinstance(x, NkiTensor) else constant(x) for x in (imm0, imm1)],
        relu_param,
        reverse0,
        reverse1,
    )

    def plain() -> Recipe:
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        name = op_name(call, op, ACTIVATIONS, session.trace.machine)
        out, source = same_domain(call, dst, data)
        walks, operands = [source], [None]
        for which, x in (("imm0", imm0), ("imm1", imm1)):
            if isinstance(x, NkiTensor):
                walks.append(vector(call, which, x, data.shape[0], len(source[0])))
                operands.append(None)
            else:
                operands.append(float(x or 0.0))
        settings = Activation2(
            op=name,
            steps=((names[0], reverse0), (names[1], reverse1)),
            slope=float(relu_param),
        )
        return Recipe("activate2", Engine.SCALAR, [out], walks, tuple(operands), settings)

    if reduce_cmd.name in ("idle", "reset"):
        instr = session.issue(key, (dst, data, *tensors), plain)
        if reduce_cmd.name == "reset" or reduce_res is not None:
            _read_out(session, dst, reduce_res, reduce_cmd.name == "reset")
        return NkiInstruction(instr)

    def lower(accumulates: bool) -> Recipe:
        single = plain()
        allowed = frozenset({"add", "maximum", "minimum", "abs_max", "abs_min"})
        settings = single.model.settings.but(
            reduce_op=op_name(call, reduce_op, allowed, session.trace.machine),
            accumulate=accumulates,
        )
        return Recipe(
            "activate2_reduce",
            Engine.SCALAR,
            single.walks[:1],
            single.walks[1:],
            single.operands,
            settings,
        )

    call_ = Accumulated("scalar", (*key, reduce_op), dst, (data, *tensors), reduce_cmd, reduce_res)
    return accumulate(session, call_, lower)


__all__ = ["activate2", "activation", "activation_reduce"]

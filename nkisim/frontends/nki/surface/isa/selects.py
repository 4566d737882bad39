"""Selections with a maximum on the side: range_select, select_reduce, exponential."""

from __future__ import annotations

from typing import Any

from nkisim.errors import DTypeError, ParameterError, ShapeError
from nkisim.frontends.nki.dtypes import FLOATS
from nkisim.frontends.nki.operands import (
    check_float32,
    check_generation,
    check_on_chip,
    free_of,
    same_domain,
    vector,
)
from nkisim.frontends.nki.ops import NAMES, op_name
from nkisim.frontends.nki.session import Recipe, Session, current
from nkisim.frontends.nki.surface.isa.accumulators import Accumulated, accumulate
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, reduce_cmd
from nkisim.frontends.nki.surface.isa.vector.checks import constant, no_packed, one_psum
from nkisim.frontends.nki.surface.operators import maximum
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.generated import Exponential
from nkisim.numerics.ops.select import Predicated, RangeSelect

FP32_MIN = -3.4028235e38
_RANGE = frozenset({"equal", "less", "less_equal", "greater", "greater_equal"})


def _maximum_only(call: str, reduce_op: Any) -> None:
    if NAMES.get(reduce_op) != "maximum":
        raise ParameterError(
            f"{call}: reduce_op {getattr(reduce_op, '__name__', reduce_op)}",
            rule="the reduction is nl.maximum",
            fix="leave it out",
        )


def _of_floats(call: str, **tensors: NkiTensor | None) -> None:
    """Raises DTypeError for a tile of another type than the page of the instruction lists (SDK
    2.32)."""
    for which, t in tensors.items():
        if t is not None and t.dtype not in FLOATS:
            raise DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule=f"{which} is of a float type",
                fix="use a float32 tile",
            )


def range_select(
    dst: NkiTensor,
    on_true_tile: NkiTensor,
    comp_op0: Any,
    comp_op1: Any,
    bound0: NkiTensor,
    bound1: NkiTensor,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_res: NkiTensor | None = None,
    reduce_op: Any = maximum,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where comp_op0(i, bound0) and comp_op1(i, bound1), else FP32_MIN, with
    i = range_start + the position in the partition; and the maximum of dst.

    Args:
        dst, on_true_tile: tiles with equally many partitions and elements per partition.
        comp_op0, comp_op1: nl.equal, nl.less, nl.less_equal, nl.greater or nl.greater_equal.
        bound0, bound1: (P, 1) float32 tiles.
        reduce_cmd: what is done with the accumulators.
        reduce_res: a (P, 1) tile that gets the maximum.
        reduce_op: nl.maximum.
        range_start: the first index; indices stay within 2**24.
        on_false_value: FP32_MIN, -3.4028235e+38.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different sizes, or bounds that are not one element a partition.
        DTypeError: bounds that are not float32, or data of no float type.
        ParameterError: on a NeuronCore before v3, another on_false_value than FP32_MIN, another
            reduction than nl.maximum, or positions beyond 2**24.
    """
    session = current()
    call = "nisa.range_select"
    check_generation(call, session.trace.machine, "target trn2")
    if on_false_value != FP32_MIN:
        raise ParameterError(
            f"{call}: on_false_value={on_false_value}",
            rule=f"it is FP32_MIN, {FP32_MIN}",
            fix="leave it out",
        )
    _maximum_only(call, reduce_op)

    def lower(accumulates: bool) -> Recipe:
        machine = session.trace.machine
        check_on_chip(call, dst=dst, on_true_tile=on_true_tile, bound0=bound0, bound1=bound1)
        no_packed(call, dst=dst, on_true_tile=on_true_tile)
        _of_floats(call, on_true_tile=on_true_tile)
        names = [op_name(call, op, _RANGE, machine) for op in (comp_op0, comp_op1)]
        check_float32(call, bound0=bound0, bound1=bound1)
        out, source = same_domain(call, dst, on_true_tile)
        axes, lanes = len(source[0]), dst.shape[0]
        bounds = [
            vector(call, n, t, lanes, axes) for n, t in (("bound0", bound0), ("bound1", bound1))
        ]
        last = int(range_start) + free_of(dst) - 1
        if not (abs(range_start) <= 2**24 and last <= 2**24):
            raise ParameterError(
                f"{call}: range_start={range_start} for {dst.describe()}",
                rule="the index is a float32, exact up to 2**24 = 16,777,216; it would reach "
                f"{last:,}",
                fix="subtract a common offset from range_start and the bounds",
            )
        coefs, step = [0], 1
        for n in reversed(source[0][1:]):
            coefs.insert(1, step)
            step *= n
        settings = RangeSelect(
            comparisons=(names[0], names[1]), value=FP32_MIN, accumulate=accumulates
        )
        operands = (None, None, None, (tuple(coefs), int(range_start)))
        return Recipe(
            "range_select",
            Engine.VECTOR,
            [out],
            [source, *bounds],
            operands,
            settings,
        )

    key = ("range_select", comp_op0, comp_op1, range_start)
    ins = (on_true_tile, bound0, bound1)
    return accumulate(session, Accumulated("vector", key, dst, ins, reduce_cmd, reduce_res), lower)


def select_reduce(
    dst: NkiTensor,
    predicate: NkiTensor,
    on_true: NkiTensor,
    on_false: NkiTensor | float,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_op: Any = maximum,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true where predicate is not 0, else on_false; and its maximum.

    Args:
        dst, predicate, on_true: tiles with equally many partitions and elements per partition.
        on_false: a number, or a (P, 1) tile.
        reduce_res: a (P, 1) tile that gets the maximum.
        reduce_cmd: what is done with the accumulators; idle reduces nothing.
        reduce_op: nl.maximum.
        reverse_pred: choose where predicate is 0.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM, or all of them in PSUM.
        ShapeError: operands of different sizes, or an on_false that is neither a number nor a tile
            of that kind.
        DTypeError: a predicate that is not int8, uint8, int16 or uint16, or data of a type that is
            not taken.
        ParameterError: another reduction than nl.maximum, or a reduce_cmd that does not reduce.
    """
    session = current()
    call = "nisa.select_reduce"
    _maximum_only(call, reduce_op)
    tile = isinstance(on_false, NkiTensor)
    key = ("select_reduce", reverse_pred, None if tile else constant(on_false))
    ins = (predicate, on_true, on_false) if tile else (predicate, on_true)

    def lower(accumulates: bool) -> Recipe:
        check_on_chip(call, dst=dst, predicate=predicate, on_true=on_true)
        if predicate.dtype not in ("int8", "uint8", "int16", "uint16"):
            raise DTypeError(
                f"{call}: predicate is {predicate.describe()}",
                rule="a predicate is int8, uint8, int16 or uint16",
                fix="convert it",
            )
        if on_true.dtype in ("tfloat32", "int32", "uint32"):
            raise DTypeError(
                f"{call}: on_true is {on_true.describe()}",
                rule="it takes no tfloat32, int32 or uint32",
                fix="convert it",
            )
        _of_floats(call, reduce_res=reduce_res)
        one_psum(call, on_true=on_true, predicate=predicate)
        out, chosen, source = same_domain(call, dst, predicate, on_true)
        axes, lanes = len(source[0]), dst.shape[0]
        walks = [chosen, source]
        if tile:
            walks.append(vector(call, "on_false", on_false, lanes, axes))
        settings = Predicated(reverse=reverse_pred, accumulate=accumulates)
        operands = (None, None, None if tile else float(on_false))
        return Recipe("select_reduce", Engine.VECTOR, [out], walks, operands, settings)

    return _maybe_reduced(session, key, dst, ins, reduce_cmd, reduce_res, None, lower)


def _maybe_reduced(
    session: Session, key: tuple, dst: NkiTensor, ins: tuple, command, result, start, lower
) -> NkiInstruction:
    if command.name == "idle":
        return NkiInstruction(session.issue(key, (dst, *ins), lambda: lower(False)))
    call = Accumulated("vector", key, dst, ins, command, result, start)
    return accumulate(session, call, lower)


def exponential(
    dst: NkiTensor,
    src: NkiTensor,
    max_value: NkiTensor | float = 0.0,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_init: NkiTensor | float = 0.0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = exp(src - max_value), and its sum (NeuronCore-v4).

    Args:
        dst, src: tiles with equally many partitions and elements per partition.
        max_value: a number, or a (P, 1) float32 tile.
        reduce_res: a (P, 1) tile that gets the sum.
        reduce_cmd: idle, reset_reduce, reduce or load_reduce.
        reduce_init: with load_reduce, what the sum begins with.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: more than 4 axes, operands of different sizes, or a max_value that is neither a
            number nor one element a partition.
        DTypeError: a src of no float type, or a max_value that is a tile and not float32.
        ParameterError: on a NeuronCore before v4, or a reduce_cmd that does not reduce.
    """
    session = current()
    call = "nisa.exponential"
    check_generation(
        call,
        session.trace.machine,
        "use nisa.activation(op=nl.exp, bias=negative maximum)",
    )
    tile = isinstance(max_value, NkiTensor)
    key = ("exponential", None if tile else constant(max_value))
    ins = (src, max_value) if tile else (src,)

    def lower(accumulates: bool) -> Recipe:
        check_on_chip(call, dst=dst, src=src)
        no_packed(call, dst=dst, src=src)
        for which, t in (("dst", dst), ("src", src)):
            if t.ndim > 4:
                raise ShapeError(
                    f"{call}: {which} is {t.describe()}",
                    rule="it takes up to 4 axes",
                    fix="join free axes: t.flatten_dims(first, last)",
                )
        _of_floats(call, reduce_res=reduce_res)
        if dst.dtype == "uint32":
            raise DTypeError(
                f"{call}: dst is {dst.describe()}",
                rule="dst is of a float type, or int8, int16, int32, uint8 or uint16",
                fix="declare it with dtype=nl.float32",
            )
        check_float32(call, max_value=max_value)
        out, source = same_domain(call, dst, src)
        axes, lanes = len(source[0]), dst.shape[0]
        walks = [source]
        if tile:
            walks.append(vector(call, "max_value", max_value, lanes, axes))
        settings = Exponential(accumulate=accumulates)
        operands = (None, None if tile else float(max_value))
        return Recipe("exponential", Engine.VECTOR, [out], walks, operands, settings)

    return _maybe_reduced(session, key, dst, ins, reduce_cmd, reduce_res, reduce_init, lower)


__all__ = ["exponential", "range_select", "select_reduce"]

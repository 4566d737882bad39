"""Instructions that compute element by element, two steps at a time, and reduce on the side."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError, locate
from nkisim.frontends.neuronxcc.lowering import chain as lowering
from nkisim.frontends.neuronxcc.lowering.elementwise import native, operator_name
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy_with
from nkisim.frontends.neuronxcc.lowering.numbers import constant
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import (
    lane_operand,
    lane_result,
    not_both_in_psum,
    one_of,
    require_tile,
    same_elements,
    same_shape,
)
from nkisim.frontends.neuronxcc.lowering.reduce import check_integers
from nkisim.frontends.neuronxcc.nki.isa.constants import choose, engine
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import FLOATS, as_dtype, promote
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space, check_shapes
from nkisim.numerics import alu
from nkisim.trace.tracer import current

_BINARY = alu.ALU_OPERATORS - alu.UNARY_ALU


@remembered
def tensor_tensor(
    data1: Tensor,
    data2: Tensor,
    op: Any,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """`op(data1, data2)`, element by element, on the Vector or GpSimd Engine.

    fp32 inside, except bit operations and, on the GpSimd Engine, add, subtract and multiply of
    32-bit integers.

    Args:
        data1, data2: tiles of one shape, (partitions <= 128, free...), not both in PSUM. A free
            axis of size 1 stands for as many equal elements as the other tile has.
        op: a binary operator: an `nki.language` function or the NumPy function of that name.
        dtype: output type; the promoted input type when None.
        mask: where to compute.
        engine: Vector or GpSimd. When unknown: Vector, except for power and, where all tiles are
            int32 or uint32, for add, subtract and multiply, which GpSimd runs.

    Returns:
        An SBUF tile of the operands' shape.

    Raises:
        ParameterError: a bit operator on another engine than Vector, or a power on another one than
            GpSimd.
        ShapeError, MemorySpaceError: shapes that differ, or both operands in PSUM.
    """
    what = "nisa.tensor_tensor"
    a, b = require_tile(what, data1), require_tile(what, data2)
    name = one_of(what, operator_name(op), _BINARY)
    a, b = same_elements(what, a, b)
    not_both_in_psum(what, a, b)
    bits = name in alu.BITVEC
    of_both = alu.bits_dtype if bits else promote
    result = of_both(a.dtype, b.dtype) if dtype is None else as_dtype(dtype)
    if bits:
        check_integers(what, a.dtype, b.dtype, result)
    integers = native(name, result, (a.dtype, b.dtype))
    asked = choose(what, engine, *_vector_or_gpsimd)
    only = Engine.VECTOR if bits else Engine.GPSIMD if name == "power" else None
    if asked is not None and only not in (None, asked):
        raise ParameterError(
            f"{what}: {name} on the {asked.value} Engine",
            rule="bit operations run on the Vector Engine, power on the GpSimd Engine",
            fix="drop engine=",
        )
    where = {"mask": mask, "engine": asked}
    if (integers and asked is None) or name == "power":
        where["default"] = Engine.GPSIMD
    out = ndarray(a.shape, result)
    # The Vector Engine has no integer arithmetic: asked to, it adds integers in fp32.
    if bits:
        current().emit("tensor_tensor", (out,), (a, b), op=name, **where)
    elif integers and asked is not Engine.VECTOR:
        current().emit("tensor_tensor", (out,), (a, b), op=name, native=True, **where)
    else:
        lowering.chain("tensor_tensor", out, x=a, steps=((name, False),), rest=(b,), **where)
    return out


_vector_or_gpsimd = (engine.vector, engine.gpsimd)
_any_compute = (engine.vector, engine.scalar, engine.gpsimd)


def _steps(what: str, *pairs: tuple[Any, Any, bool]) -> tuple[lowering.Steps, tuple]:
    """Checked (operator, swapped) pairs and their operands, leaving out an op of None."""
    steps, operands = [], []
    for at, (op, operand, swap) in enumerate(pairs):
        if op is None:
            if operand is not None:
                raise ParameterError(
                    f"{what}: operand{at} without op{at}",
                    rule=f"op{at} and operand{at} are both given or both None",
                    fix=f"pass op{at}, e.g. op{at}=nl.add, or drop operand{at}",
                )
            continue
        if operand is None:
            raise ParameterError(
                f"{what}: op{at} without operand{at}",
                rule=f"op{at} and operand{at} are both given or both None",
                fix=f"pass operand{at}, a number or a (partitions, 1) tile",
            )
        steps.append((one_of(what, operator_name(op), alu.ALU_OPERATORS), bool(swap)))
        operands.append(operand)
    if len({name in alu.BITVEC for name, _ in steps}) > 1:
        raise ParameterError(
            f"{what}: {steps[0][0]} and {steps[1][0]} in one instruction",
            rule="both operators work on bits, or both are arithmetic",
            fix="use two instructions",
        )
    return tuple(steps), tuple(operands)


@remembered
def tensor_scalar(
    data: Tensor,
    op0: Any,
    operand0: Tensor | float,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Tensor | float | None = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """`(data op0 operand0) op1 operand1`, fp32 inside, one rounding at the end.

    Args:
        data: tile in SBUF or PSUM.
        op0, op1: operators, both on bits or both arithmetic; op1 may be None. rsqrt, abs and the
            other operators of one argument ignore their operand.
        operand0, operand1: a number, or a tile of shape (partitions, 1).
        reverse0, reverse1: put the operand on the left of the operator.
        dtype: output type; data's when None.
        mask: where to compute.
        engine: Vector, Scalar (Trn2: multiply-add, multiply, add) or GpSimd (rsqrt only).

    Returns:
        An SBUF tile of data's shape.
    """
    what = "nisa.tensor_scalar"
    data = require_tile(what, data)
    steps, operands = _steps(what, (op0, operand0, reverse0), (op1, operand1, reverse1))
    names = [name for name, _ in steps]
    result = data.dtype if dtype is None else as_dtype(dtype)
    runs_on = choose(what, engine, *_any_compute)
    bits = names[0] in alu.BITVEC
    if bits:
        check_integers(what, data.dtype, result)
        for operand in operands:
            if isinstance(operand, Tensor):
                check_integers(what, operand.dtype)
            elif not isinstance(operand, int | np.integer):
                check_integers(what, np.dtype(np.float32))
    _check_tensor_scalar_engine(what, runs_on, names, bits)
    operands = tuple(lane_operand(f"{what}: operand{i}", x, data) for i, x in enumerate(operands))
    out = ndarray(data.shape, result)
    lowering.chain(
        "tensor_scalar", out, x=data, steps=steps, rest=operands, mask=mask, engine=runs_on
    )
    return out


def _check_tensor_scalar_engine(
    what: str, runs_on: Engine | None, names: list[str], bits: bool
) -> None:
    rule = None
    if bits and runs_on not in (None, Engine.VECTOR):
        rule = "bit operations run on the Vector Engine"
    elif runs_on is Engine.GPSIMD and names != ["rsqrt"] and "rsqrt" not in names:
        rule = "the GpSimd Engine runs tensor_scalar for rsqrt only"
    elif runs_on is Engine.SCALAR and (
        not current().trace.machine.abilities.scalar_affine
        or names not in (["multiply", "add"], ["multiply"], ["add"])
    ):
        rule = "the Scalar Engine runs tensor_scalar from NeuronCore-v3 (Trn2) on, for multiply "
        rule += "then add, multiply alone, or add alone"
    if rule:
        raise ParameterError(
            f"{what}: {' then '.join(names)} on the {runs_on.value} Engine of "
            f"{current().trace.machine.name}",
            rule=rule,
            fix="drop engine=",
        )


@remembered
def scalar_tensor_tensor(
    *,
    data: Tensor,
    op0: Any,
    operand0: Tensor | float,
    op1: Any,
    operand1: Tensor,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`(data op0 operand0) op1 operand1` on the Vector Engine, fp32 inside.

    Args:
        data: two-dimensional tile in SBUF or PSUM.
        op0, op1: arithmetic or bit operators.
        operand0: a number, or a tile of shape (partitions, 1).
        operand1: tile of data's shape; it and data are not both in PSUM.
        reverse0, reverse1: put the operand on the left of the operator.
        dtype: output type; data's when None.
        mask: where to compute.

    Returns:
        An SBUF tile of data's shape.

    Raises:
        ShapeError: data has another number of axes than two, or operand1 another shape.
    """
    what = "nisa.scalar_tensor_tensor"
    data, operand1 = require_tile(what, data), require_tile(what, operand1)
    if data.ndim != 2:
        raise ShapeError(
            f"{what}: data is {data.describe()} with {data.ndim} axes",
            rule="data has two axes: partitions and one free axis",
            fix="index the tile to two axes",
        )
    same_shape(what, data, operand1)
    not_both_in_psum(what, data, operand1)
    steps, operands = _steps(what, (op0, operand0, reverse0), (op1, operand1, reverse1))
    result = data.dtype if dtype is None else as_dtype(dtype)
    if steps[0][0] in alu.BITVEC:
        check_integers(what, data.dtype, operand1.dtype, result)
    out = ndarray(data.shape, result)
    lowering.chain("scalar_tensor_tensor", out, x=data, steps=steps, rest=operands, mask=mask)
    return out


_REDUCE_RESULT = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})


@remembered
def tensor_scalar_reduce(
    *,
    data: Tensor,
    op0: Any,
    operand0: Tensor | float,
    reduce_op: Any,
    reduce_res: Tensor,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`data op0 operand0`, and its reduction over all free axes into `reduce_res`.

    Args:
        data: tile in SBUF or PSUM.
        op0: an arithmetic operator.
        operand0: a number, or a tile of shape (partitions, 1).
        reduce_op: add, subtract, multiply, max or min.
        reduce_res: tile of shape (partitions, 1), written.
        reverse0: not supported by the hardware yet.
        dtype: output type; data's when None.
        mask: where to compute, and what counts.

    Returns:
        An SBUF tile of data's shape.

    Raises:
        ParameterError: reverse0 is set, or reduce_op is no reduction.
    """
    what = "nisa.tensor_scalar_reduce"
    data = require_tile(what, data)
    if reverse0:
        raise ParameterError(
            f"{what}: reverse0=True",
            rule="this instruction does not swap its operands",
            fix="use nisa.tensor_scalar with reverse0 and then nisa.tensor_reduce",
        )
    steps, operands = _steps(what, (op0, operand0, False))
    one_of(what, steps[0][0], alu.ALU_OPERATORS - alu.BITVEC)
    reduction = one_of(f"{what}: reduce_op", operator_name(reduce_op), _REDUCE_RESULT)
    res = lane_result(f"{what}: reduce_res", reduce_res, data)
    for which, t in (("data", data), ("reduce_res", res)):
        if t.dtype not in FLOATS:
            error = DTypeError(
                f"{what}: {which} is {t.describe()}",
                rule="users report that the compiler wants floating point in data and reduce_res "
                "(NCC_IBVF012, NCC_IBVF013); AWS's page does not say",
                fix="use float32, or nisa.tensor_scalar and then nisa.tensor_reduce",
                location=locate(),
            )
            current().checker.report("compiler", error)
    out = ndarray(data.shape, data.dtype if dtype is None else dtype)
    lowering.with_reductions(
        "tensor_scalar_reduce",
        out,
        (data, lane_operand("operand0", operands[0], data)),
        reduce_op=reduction,
        reductions=(res,),
        mask=mask,
        op=steps[0][0],
        steps=steps,
    )
    return out


@remembered
def reciprocal(
    data: Tensor, *, dtype: Any = None, mask: Mask | None = None, **kwargs: Any
) -> Tensor:
    """1 / data on the Vector Engine, which is more precise there than on the Scalar Engine."""
    what = "nisa.reciprocal"
    data = require_tile(what, data)
    out = ndarray(data.shape, data.dtype if dtype is None else dtype)
    current().emit("reciprocal", (out,), (data,), mask=mask, op="reciprocal")
    return out


@remembered
def tensor_copy(
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """Copy an on-chip tile into a new SBUF tile, converting to `dtype` if given.

    Args:
        src: tile in SBUF or PSUM (not PSUM on the GpSimd Engine).
        mask: which elements to copy.
        dtype: type of the copy; src's when None.
        engine: Vector, Scalar or GpSimd.

    Raises:
        MemorySpaceError: a tile in PSUM, on the GpSimd Engine.
    """
    what = "nisa.tensor_copy"
    src = require_tile(what, src)
    runs_on = choose(what, engine, *_any_compute)
    if runs_on is Engine.GPSIMD and src.space is Space.PSUM:
        raise MemorySpaceError(
            f"{what} of {src.describe()} on the GpSimd Engine",
            rule="the GpSimd Engine cannot access PSUM",
            fix="use the Vector or the Scalar Engine",
        )
    return copy_with(runs_on, src, mask=mask, dtype=dtype)


@remembered
def memset(
    shape: tuple[int, ...],
    value: float,
    dtype: Any,
    *,
    mask: Mask | None = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """A new SBUF tile of one value, known while tracing.

    Args:
        shape: the first axis is the partition axis; nl.par_dim is ignored.
        value: the number.
        dtype: type of the tile.
        mask: which elements to set; the others are undefined.
        engine: Vector or GpSimd.

    Raises:
        ParameterError: value is a tile.
    """
    what = "nisa.memset"
    if isinstance(value, Tensor):
        raise ParameterError(
            f"{what}: value is {value.describe()}",
            rule="the value is a number known while tracing",
            fix="copy the tile with nl.broadcast_to, or nisa.tensor_copy",
        )
    tile = ndarray(check_shapes(shape), dtype)
    runs_on = choose(what, engine, *_vector_or_gpsimd)
    filled = constant(what, value, tile.dtype)
    current().emit("memset", (tile,), mask=mask, engine=runs_on, value=filled)
    return tile


__all__ = [
    "memset",
    "reciprocal",
    "scalar_tensor_tensor",
    "tensor_copy",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
]

"""Reductions, scans and statistics along the free axes."""

from __future__ import annotations

from typing import Any

from nkisim.errors import (
    DTypeError,
    ParameterError,
    ShapeError,
    locate,
)
from nkisim.frontends.nki.dtypes import FLOATS
from nkisim.frontends.nki.operands import (
    check_float32,
    check_on_chip,
    common,
    free_of,
    same_domain,
    vector,
)
from nkisim.frontends.nki.ops import ALU, BITS, REDUCTIONS, UNARY, op_name
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.accumulators import Accumulated, accumulate
from nkisim.frontends.nki.surface.isa.copies import settled_pair
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, reduce_cmd
from nkisim.frontends.nki.surface.isa.vector.checks import (
    axes_of,
    check_bits,
    constant,
    is_tensor,
    no_packed,
    one_psum,
    per_partition,
)
from nkisim.frontends.nki.surface.isa.vector.elementwise import WIDE
from nkisim.frontends.nki.tensors.layout import merged
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.chain import OperatorsReduce
from nkisim.numerics.ops.generated import Cumulative
from nkisim.numerics.ops.reduce import Reduction, Scan


def tensor_reduce(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    axis: int | tuple[int, ...],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op over the last axes of data.

    Args:
        dst: a tile with one element for each position along the other axes.
        op: a reduction operator.
        data: a tile.
        axis: the reduced axes: adjacent, up to the last axis, without axis 0.
        negate: write the negative.
        keepdims: whether dst keeps the axes, with extent 1.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: dst is not the shape of the reduction.
        DTypeError: bits of no integer type, or a packed type.
        ParameterError: axes that are not the last ones, an op that does not reduce, or negated
            bits.
    """
    session = current()
    dst, data = settled_pair(session, dst, data)
    key = ("tensor_reduce", op, tuple(axis) if isinstance(axis, list) else axis, negate)
    return NkiInstruction(
        session.issue(key, (dst, data), lambda: _reduce(dst, op, data, axis, negate))
    )


def _reduce(dst, op, data, axis, negate) -> Recipe:
    call = "nisa.tensor_reduce"
    check_on_chip(call, dst=dst, data=data)
    no_packed(call, dst=dst, data=data)
    name = op_name(call, op, REDUCTIONS, current().trace.machine)
    check_bits(call, [name], dst=dst, data=data)
    if negate and name in BITS:
        raise ParameterError(
            f"{call}: negate of nl.{name}",
            rule="results of arithmetic are negated",
            fix="leave negate out",
        )
    axes = axes_of(call, data, axis)
    out, source, axes = reduced_walks(call, dst, data, len(axes))
    settings = Reduction(op=name, axes=axes, negate=negate)
    return Recipe("tensor_reduce", Engine.VECTOR, [out], [source], None, settings)


def reduced_walks(call: str, dst: NkiTensor, data: NkiTensor, count: int) -> tuple:
    """Walks of a reduction of the last `count` axes, and those axes in the walk of the data."""
    own = data._layout
    kept = slice(1, len(own.shape) - count)
    gone = slice(len(own.shape) - count, None)
    outer = merged(own.shape[kept], own.strides[kept])
    inner = merged(own.shape[gone], own.strides[gone])
    out = merged(dst.shape[1:], dst._layout.strides[1:])
    size = 1
    for n in own.shape[kept]:
        size *= n
    if dst.shape[0] != data.shape[0] or free_of(dst) != size:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, data {data.describe()}",
            rule=f"the reduction has {data.shape[0]} partitions of {size} elements",
            fix="declare dst so",
        )
    (shape, source), (_, target) = common(call, (data, dst), (outer, out))
    if shape == (1,):
        shape, source, target = (), (), ()
    last = inner[0] or (1,)
    steps = inner[1] or (1,)
    walk = ((data.shape[0], *shape, *last), (own.strides[0], *source, *steps))
    ones = (1,) * len(last)
    result = ((data.shape[0], *shape, *ones), (dst._layout.strides[0], *target, *ones))
    first = 1 + len(shape)
    return result, walk, tuple(range(first, first + len(last)))


def tensor_tensor_scan(
    dst: NkiTensor,
    data0: NkiTensor,
    data1: NkiTensor,
    initial: NkiTensor | float,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst[i] = op1(op0(data0[i], dst[i - 1]), data1[i]) along the free axes, from `initial` on.

    Args:
        dst, data0, data1: tiles with equally many partitions and elements per partition.
        initial: a number, or a (P, 1) float32 tile.
        op0, op1: arithmetic operators of two operands.
        reverse0, reverse1: the operands of the operator in the other order.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM, or data0 and data1 both in PSUM.
        ShapeError: operands of different sizes, or an initial that is neither a number nor one
            element a partition.
        DTypeError: a packed type.
        ParameterError: an op that is no operator of arithmetic.
    """
    session = current()
    tile = type(initial) is NkiTensor
    tensors = (dst, data0, data1, initial) if tile else (dst, data0, data1)
    key = (
        "tensor_tensor_scan",
        None if tile else constant(initial),
        op0,
        op1,
        reverse0,
        reverse1,
    )

    def lower() -> Recipe:
        call = "nisa.tensor_tensor_scan"
        machine = session.trace.machine
        check_on_chip(call, dst=dst, data0=data0, data1=data1)
        no_packed(call, dst=dst, data0=data0, data1=data1)
        one_psum(call, data0=data0, data1=data1)
        names = [op_name(call, op, ALU - BITS - UNARY, machine) for op in (op0, op1)]
        out, *walks = same_domain(call, dst, data0, data1)
        if tile:
            walks.append(vector(call, "initial", initial, dst.shape[0], len(out[0])))
        settings = Scan(
            steps=((names[0], reverse0), (names[1], reverse1)),
            initial=None if tile else float(initial),
        )
        return Recipe("tensor_tensor_scan", Engine.VECTOR, [out], walks, None, settings)

    return NkiInstruction(session.issue(key, tensors, lower))


def bn_stats(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = count, mean and count * variance of the even elements of each partition, then of the
    odd ones.

    Args:
        dst: a tile of 6 elements a partition.
        data: a tile of up to 512 elements a partition.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: more elements a partition than nl.tile_size.bn_stats_fmax, or a dst of other
            than 6.
        DTypeError: a packed type.
    """
    session = current()

    def lower() -> Recipe:
        call = "nisa.bn_stats"
        check_on_chip(call, dst=dst, data=data)
        most = session.trace.machine.bn_stats_fmax
        if free_of(data) > most:
            raise ShapeError(
                f"{call}: data is {data.describe()}",
                rule=f"it takes up to {most} elements a partition",
                fix="call it on parts, and merge their results with nisa.bn_aggr",
            )
        return per_partition(call, "bn_stats", dst, data, 6)

    return NkiInstruction(session.issue(("bn_stats",), (dst, data), lower))


def bn_aggr(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = mean and variance, from triples of bn_stats.

    Args:
        dst: a tile of 2 elements a partition.
        data: a tile of triples (count, mean, count * variance).
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: data that are no triples of bn_stats, or a dst of other than 2.
        DTypeError: a packed type.
    """
    session = current()

    def lower() -> Recipe:
        call = "nisa.bn_aggr"
        check_on_chip(call, dst=dst, data=data)
        if free_of(data) % 3:
            raise ShapeError(
                f"{call}: data is {data.describe()}",
                rule="a partition holds triples of bn_stats",
                fix="pass all of what bn_stats gave",
            )
        return per_partition(call, "bn_aggr", dst, data, 2)

    return NkiInstruction(session.issue(("bn_aggr",), (dst, data), lower))


def tensor_scalar_cumulative(
    dst: NkiTensor,
    src: NkiTensor,
    op0: Any,
    op1: Any,
    imm0: NkiTensor | float,
    imm1: NkiTensor | float | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    name: str | None = None,
) -> NkiInstruction:
    """dst[i] = op1 over src[0..i] op0 imm0.

    Args:
        dst, src: tiles with equally many partitions and elements per partition; no 32-bit integers.
        op0: an arithmetic operator.
        op1: nl.add, nl.subtract, nl.multiply, nl.maximum or nl.minimum.
        imm0: a number, or a (P, 1) float32 tile.
        imm1: with load_reduce, what the reduction begins with.
        reduce_cmd: reset_reduce, reduce or load_reduce.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: src and dst of different sizes, or an operand that is neither a number nor one
            element a partition.
        DTypeError: an operand that is a tile and not float32, or 32-bit integers.
        ParameterError: an op that is no operator of arithmetic, or a reduce_cmd that does not
            reduce.
    """
    session = current()
    call = "nisa.tensor_scalar_cumulative"
    check_on_chip(call, dst=dst, src=src)
    check_float32(call, imm0=imm0, imm1=imm1)
    for t in (dst, src):
        if t.dtype in WIDE:
            raise DTypeError(
                f"{call} of {t.describe()}",
                rule="it takes no 32-bit integers",
                fix="convert to float32",
            )
    machine = session.trace.machine
    running = op_name(call, op1, ADD_UP | {"subtract"}, machine)
    if reduce_cmd.name not in ("reset_reduce", "reduce", "load_reduce"):
        raise ParameterError(
            f"{call}: reduce_cmd.{reduce_cmd.name}",
            rule="it is reset_reduce, reduce or load_reduce",
            fix="name one of these",
        )
    lanes = dst.shape[0]
    at = dst.offset // dst._layout.row
    kept = session.state_tensor("vector accumulators", (128, 1), "float32")[at : at + lanes]
    start: NkiTensor | float = {"add": 0.0, "subtract": 0.0, "multiply": 1.0}.get(running, 0.0)
    if reduce_cmd.name == "load_reduce":
        start = imm1
    elif reduce_cmd.name == "reduce":
        start = kept
    tile0, tile1 = is_tensor(imm0), is_tensor(start)
    tensors = [dst, kept, src]
    if tile0:
        tensors.append(imm0)
    if tile1:
        tensors.append(start)
    key = (
        "tensor_scalar_cumulative",
        op0,
        op1,
        None if tile0 else constant(imm0),
        None if tile1 else constant(start),
        reduce_cmd,
    )

    def lower() -> Recipe:
        name = op_name(call, op0, ALU - BITS, machine)
        out, source = same_domain(call, dst, src)
        axes = len(source[0])
        walks = [source]
        if tile0:
            walks.append(vector(call, "imm0", imm0, lanes, axes))
        if tile1:
            walks.append(vector(call, "imm1", start, lanes, axes))
        settings = Cumulative(step=name, running=running, fresh=reduce_cmd.name == "reset_reduce")
        operands = (None, None if tile0 else float(imm0), None if tile1 else float(start))
        last = vector(call, "accumulator", kept, lanes, axes)
        return Recipe(
            "tensor_scalar_cumulative", Engine.VECTOR, [out, last], walks, operands, settings
        )

    return NkiInstruction(session.issue(key, tuple(tensors), lower))


def tensor_scalar_reduce(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: NkiTensor | float,
    reduce_op: Any,
    reduce_res: NkiTensor | None = None,
    reverse0: bool = False,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_init: NkiTensor | float | None = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data op0 operand0, and its reduction over the free axes.

    Args:
        dst, data: tiles with equally many partitions and elements per partition.
        op0: an arithmetic operator.
        operand0: a number, or a (P, 1) tile.
        reduce_op: nl.add, nl.multiply, nl.maximum or nl.minimum.
        reduce_res: (P, 1) tile for the reduction; None leaves it in the accumulators.
        reverse0: not supported.
        reduce_cmd: reset_reduce, reduce or load_reduce.
        reduce_init: with load_reduce, what the accumulators begin with.
        reduce_res_negate: write the negative.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: data and dst of different sizes, or an operand or a reduce_res that is not one
            element a partition.
        DTypeError: an operand that is a tile and not float32, or a packed type.
        ParameterError: an op that is no operator of arithmetic, reverse0, or a reduce_cmd that does
            not go with the rest.
    """
    session = current()
    call = "nisa.tensor_scalar_reduce"
    if reverse0:
        raise ParameterError(
            f"{call}: reverse0", rule="operands are not reversed here", fix="leave it out"
        )
    if (reduce_init is not None) != (reduce_cmd.name == "load_reduce"):
        raise ParameterError(
            f"{call}: reduce_init={reduce_init!r} with reduce_cmd.{reduce_cmd.name}",
            rule="reduce_init goes with reduce_cmd.load_reduce",
            fix="pass both, or none",
        )
    tile = type(operand0) is NkiTensor
    _of_floats(session, call, data=data, reduce_res=reduce_res)

    def lower(accumulates: bool) -> Recipe:
        machine = session.trace.machine
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        name = op_name(call, op0, ALU - BITS, machine)
        out, source = same_domain(call, dst, data)
        walks = [source]
        if tile:
            walks.append(vector(call, "operand0", operand0, data.shape[0], len(source[0])))
        operands = (None, None if tile else operand0)
        settings = OperatorsReduce(
            steps=((name, False),),
            reduce_op=op_name(call, reduce_op, ADD_UP, machine),
            accumulate=accumulates,
        )
        return Recipe("tensor_scalar_reduce", Engine.VECTOR, [out], walks, operands, settings)

    return accumulate(
        session,
        Accumulated(
            "vector",
            ("tensor_scalar_reduce", op0, None if tile else constant(operand0), reduce_op),
            dst,
            (data, operand0) if tile else (data,),
            reduce_cmd,
            reduce_res,
            reduce_init,
            reduce_res_negate,
        ),
        lower,
    )


def _of_floats(session: Any, call: str, **tensors: NkiTensor | None) -> None:
    """Warns of integers, which a kernel checked on a trn2 says that the compiler refuses
    (NCC_IBVF012, NCC_IBVF013). AWS's page names no types; that of tensor_scalar_cumulative, whose
    hardware is the same, refuses 32-bit integers."""
    for which, t in tensors.items():
        if type(t) is NkiTensor and t.dtype not in FLOATS:
            error = DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule="users report that the compiler wants floating point in data and reduce_res "
                "(NCC_IBVF012, NCC_IBVF013); AWS's page does not say",
                fix="use float32, or nisa.tensor_scalar and then nisa.tensor_reduce",
                location=locate(),
            )
            session.checker.report("compiler", error)


ADD_UP = frozenset({"add", "multiply", "maximum", "minimum"})


__all__ = [
    "bn_aggr",
    "bn_stats",
    "tensor_reduce",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor_scan",
]

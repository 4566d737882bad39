"""Elementwise instructions, reductions and scans of the Vector Engine."""

from __future__ import annotations

from typing import Any

from nkisim.errors import (
    DTypeError,
    KernelError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
)
from nkisim.frontends.nki import dtypes
from nkisim.frontends.nki.layout import merged
from nkisim.frontends.nki.operands import (
    check_on_chip,
    common,
    free_of,
    same_domain,
    vector,
)
from nkisim.frontends.nki.ops import ALU, BITS, REDUCTIONS, UNARY, op_name
from nkisim.frontends.nki.session import Recipe, Session, current
from nkisim.frontends.nki.surface.isa.accumulators import Accumulated, accumulate
from nkisim.frontends.nki.surface.isa.copies import settled_pair, wrong_engine
from nkisim.frontends.nki.surface.isa.enums import ENGINES, NkiInstruction, engine, reduce_cmd
from nkisim.frontends.nki.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.machine import GEN2

Operand = "NkiTensor | float"


def constant(x: float) -> Any:
    """A number as a part of a key: 0.0 and -0.0, 1 and True are equal."""
    return x or str(x)


def one_psum(call: str, **tensors: NkiTensor) -> None:
    """Raises MemorySpaceError when all of some operands are in PSUM."""
    if all(t._layout.space is Space.PSUM for t in tensors.values()):
        names = " and ".join(tensors)
        raise MemorySpaceError(
            f"{call}: {names} in PSUM",
            rule=f"{names} are not all in PSUM",
            fix="copy one of them to SBUF",
        )


def check_bits(call: str, names: list[str], **tensors: NkiTensor) -> None:
    """Raises DTypeError for bit operators on what is no integer."""
    if not any(n in BITS for n in names):
        return
    for which, t in tensors.items():
        if t.dtype not in dtypes.INTEGERS and t.dtype != "bool":
            raise DTypeError(
                f"{call}: nl.{names[0]} with {which} {t.describe()}",
                rule="bit operators take integer types, and do not convert",
                fix="view the bits as an integer type: t.view(nl.uint32)",
            )


def no_packed(call: str, **tensors: NkiTensor) -> None:
    """Raises DTypeError for a packed type, which no arithmetic is defined on."""
    for which, t in tensors.items():
        if t.dtype in dtypes.PACKED:
            raise DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule="packed types are moved, quantised to, and multiplied by nc_matmul_mx",
                fix="use an unpacked type",
            )


def _is_tensor(x: object) -> bool:
    return type(x) is NkiTensor


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Any,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data1, data2), element by element.

    Args:
        dst, data1, data2: tiles with as many partitions, and elements in each.
        op: an operator of `nki.language`.
        engine: vector or gpsimd; the latter for 32-bit integers and powers unless PSUM is read.
        name: of the instruction.

    Arithmetic is done in fp32, on 32-bit integers in integers, and cast to dst's type.
    """
    session = current()
    key = ("tensor_tensor", op, engine)
    try:
        if dst._indirect or data1._indirect or data2._indirect:
            dst, data1, data2 = settled_pair(session, dst, data1, data2)
    except AttributeError:
        pass
    return NkiInstruction(
        session.issue(
            key, (dst, data1, data2), lambda: _tensor_tensor(dst, data1, data2, op, engine)
        )
    )


_WIDE = frozenset({"int32", "uint32"})


def _tensor_tensor(dst, data1, data2, op, where) -> Recipe:
    call = "nisa.tensor_tensor"
    check_on_chip(call, dst=dst, data1=data1, data2=data2)
    name = op_name(call, op, ALU - UNARY, current().trace.machine)
    no_packed(call, dst=dst, data1=data1, data2=data2)
    one_psum(call, data1=data1, data2=data2)
    check_bits(call, [name], dst=dst, data1=data1, data2=data2)
    psum = any(t._layout.space is Space.PSUM for t in (dst, data1, data2))
    whole = {data1.dtype, data2.dtype} <= _WIDE and name not in BITS
    at = ENGINES[where]
    if where not in (engine.unknown, engine.vector, engine.gpsimd):
        raise wrong_engine(call, where, "vector, gpsimd")
    if at is None:
        on_gpsimd = (whole and not psum) or name == "power"
        at = Engine.GPSIMD if on_gpsimd else Engine.VECTOR
    attrs: dict[str, Any] = {"op": name}
    walks = same_domain(call, dst, data1, data2)
    return Recipe(
        "tensor_tensor", at, [walks[0]], [*walks[1:]], None, attrs, where is not engine.unknown
    )


def tensor_scalar(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: NkiTensor | float | None,
    reverse0: bool = False,
    op1: Any = None,
    operand1: NkiTensor | float | None = None,
    reverse1: bool = False,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1.

    Args:
        dst, data: tiles with as many partitions, and elements in each.
        op0, op1: operators, both of bits or both arithmetic.
        operand0, operand1: numbers, or (P, 1) tiles (fp32 for arithmetic). None for an operator
            of one operand.
        reverse0, reverse1: operand first.
        engine: vector, scalar (multiply, add, on NeuronCore-v3 and later) or gpsimd (rsqrt).
        name: of the instruction.
    """
    session = current()
    if dst._indirect is not None or data._indirect is not None:
        dst, data = settled_pair(session, dst, data)
    first, second = type(operand0) is NkiTensor, type(operand1) is NkiTensor
    tensors: tuple = (dst, data)
    if first:
        tensors = (dst, data, operand0)
    if second:
        tensors = (*tensors, operand1)
    key = (
        "tensor_scalar",
        op0,
        None if first else operand0 or str(operand0),
        reverse0,
        op1,
        None if second else operand1 or str(operand1),
        reverse1,
        engine,
    )
    try:
        return NkiInstruction(
            session.issue(
                key,
                tensors,
                lambda: _tensor_scalar(
                    "nisa.tensor_scalar",
                    dst,
                    data,
                    [(op0, operand0, reverse0), (op1, operand1, reverse1)],
                    engine,
                ),
            )
        )
    except KernelError:  # some of which are a TypeError, too
        raise
    except TypeError as error:
        raise _bad_operand("nisa.tensor_scalar", operand0, operand1) from error


def _bad_operand(call: str, *operands: object) -> ParameterError:
    return ParameterError(
        f"{call}: operands {operands!r}",
        rule="an operand is a number, or a (P, 1) tile",
        fix="pass one of these",
    )


def steps_of(
    call: str, data: NkiTensor, given: list, axes: int, machine: Any
) -> tuple[tuple, list, list]:
    """(operator, reversed) pairs, operands (None for tiles), and the walks of these tiles."""
    steps, operands, walks = [], [], []
    for at, (op, operand, reverse) in enumerate(given):
        if op is None:
            continue
        name = op_name(call, op, ALU, machine)
        which = f"operand{at}"
        if name in UNARY and isinstance(operand, type(None)):
            operand = 0.0
        if isinstance(operand, NkiTensor):
            check_on_chip(call, **{which: operand})
            walks.append(vector(call, which, operand, data.shape[0], axes))
            if name not in BITS and operand.dtype != "float32":
                raise DTypeError(
                    f"{call}: {which} is {operand.describe()}",
                    rule="a tile operand of arithmetic is float32",
                    fix="convert it with nisa.tensor_copy into a float32 tile",
                )
            operands.append(None)
        elif operand is None:
            raise _bad_operand(call, operand)
        else:
            operands.append(operand)
        steps.append((name, bool(reverse)))
    bits = [name in BITS for name, _ in steps]
    if any(bits) and not all(bits):
        raise ParameterError(
            f"{call}: nl.{steps[0][0]} and nl.{steps[1][0]}",
            rule="both operators work on bits, or both are arithmetic",
            fix="use two instructions",
        )
    return tuple(steps), operands, walks


def _tensor_scalar(call: str, dst, data, given: list, where: engine) -> Recipe:
    machine = current().trace.machine
    check_on_chip(call, dst=dst, data=data)
    no_packed(call, dst=dst, data=data)
    out, source = same_domain(call, dst, data)
    steps, operands, walks = steps_of(call, data, given, len(source[0]), machine)
    names = [n for n, _ in steps]
    check_bits(call, names, dst=dst, data=data)
    at = ENGINES[where] or Engine.VECTOR
    if where is engine.scalar:
        if machine is GEN2 or tuple(names) not in (("multiply", "add"), ("multiply",), ("add",)):
            raise ParameterError(
                f"{call}: {' and '.join('nl.' + n for n in names)} on the Scalar Engine of "
                f"{machine.name}",
                rule="the Scalar Engine of NeuronCore-v3 and later does multiply and add, multiply "
                "alone, or add alone",
                fix="use engine.vector, or nisa.activation",
            )
    elif where is engine.gpsimd:
        if names != ["rsqrt"]:
            raise ParameterError(
                f"{call}: {' and '.join('nl.' + n for n in names)} on the GpSimd Engine",
                rule="the GpSimd Engine does rsqrt alone here",
                fix="use engine.vector",
            )
    elif where not in (engine.unknown, engine.vector):
        raise wrong_engine(call, where, "vector, scalar, gpsimd")
    return Recipe(
        "tensor_scalar",
        at,
        [out],
        [source, *walks],
        (None, *operands),
        {"steps": steps},
        where is not engine.unknown,
    )


def scalar_tensor_tensor(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: NkiTensor | float,
    op1: Any,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1, where operand1 is a whole tile.

    Args:
        dst, data, operand1: tiles with as many partitions, and elements in each.
        op0, op1: arithmetic operators.
        operand0: a number, or a (P, 1) tile.
        reverse0, reverse1: operand first.
        name: of the instruction.
    """
    session = current()
    dst, data, operand1 = settled_pair(session, dst, data, operand1)
    tile = type(operand0) is NkiTensor
    tensors = (dst, data, operand0, operand1) if tile else (dst, data, operand1)
    key = (
        "scalar_tensor_tensor",
        op0,
        None if tile else constant(operand0),
        op1,
        reverse0,
        reverse1,
    )

    def lower() -> Recipe:
        call = "nisa.scalar_tensor_tensor"
        machine = session.trace.machine
        check_on_chip(call, dst=dst, data=data, operand1=operand1)
        no_packed(call, dst=dst, data=data, operand1=operand1)
        one_psum(call, data=data, operand1=operand1)
        names = [op_name(call, op, ALU - BITS, machine) for op in (op0, op1)]
        out, source, other = same_domain(call, dst, data, operand1)
        walks = [source]
        if tile:
            check_on_chip(call, operand0=operand0)
            walks.append(vector(call, "operand0", operand0, data.shape[0], len(source[0])))
        steps = ((names[0], bool(reverse0)), (names[1], bool(reverse1)))
        operands = (None, None if tile else operand0, None)
        return Recipe(
            "scalar_tensor_tensor",
            Engine.VECTOR,
            [out],
            [*walks, other],
            operands,
            {"steps": steps},
        )

    return NkiInstruction(session.issue(key, tensors, lower))


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
        dst, data: tiles with as many partitions, and elements in each.
        op0: an arithmetic operator.
        operand0: a number, or a (P, 1) tile.
        reduce_op: nl.add, nl.multiply, nl.maximum or nl.minimum.
        reduce_res: (P, 1) tile for the reduction; None leaves it in the accumulators.
        reverse0: not supported.
        reduce_cmd: reset_reduce, reduce or load_reduce.
        reduce_init: with load_reduce, what the accumulators begin with.
        reduce_res_negate: write the negative.
        name: of the instruction.
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

    def lower(outs: list, before: list) -> Recipe:
        machine = session.trace.machine
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        name = op_name(call, op0, ALU - BITS, machine)
        out, source = same_domain(call, dst, data)
        axes = len(source[0])
        walks = [source]
        if tile:
            walks.append(vector(call, "operand0", operand0, data.shape[0], axes))
        lanes = data.shape[0]
        results = [vector(call, "reduce_res", t, lanes, axes) for t in outs]
        start = [vector(call, "accumulator", t, lanes, axes) for t in before]
        operands = (None, None if tile else operand0, *[None] * len(start))
        attrs = {
            "steps": ((name, False),),
            "reduce_op": op_name(call, reduce_op, _ADD_UP, machine),
        }
        if start:
            attrs["accumulate"] = True
        return Recipe(
            "tensor_scalar_reduce",
            Engine.VECTOR,
            [out, *results],
            [*walks, *start],
            operands,
            attrs,
        )

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


_ADD_UP = frozenset({"add", "multiply", "maximum", "minimum"})


def reciprocal(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = 1 / data.

    Args:
        dst, data: tiles with as many partitions, and elements in each.
        name: of the instruction.
    """
    session = current()
    dst, data = settled_pair(session, dst, data)

    def lower() -> Recipe:
        call = "nisa.reciprocal"
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        out, source = same_domain(call, dst, data)
        return Recipe("reciprocal", Engine.VECTOR, [out], [source], None, {"op": "reciprocal"})

    return NkiInstruction(session.issue(("reciprocal",), (dst, data), lower))


def axes_of(call: str, data: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The axes that are reduced. Raises ParameterError unless they are the last ones."""
    given = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    n = data.ndim
    axes = tuple(sorted(a % n if isinstance(a, int) and -n <= a < n else -1 for a in given))
    if not axes or axes != tuple(range(n - len(axes), n)) or axes[0] <= 0:
        raise ParameterError(
            f"{call}: axis={axis!r} of {data.describe()}",
            rule=f"axes are reduced that follow each other and end with the last one, {n - 1}; "
            "axis 0 is laid over partitions",
            fix="bring the axes to the end with t.permute(dims)",
        )
    return axes


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
        dst: a tile with an element for each of those of the other axes.
        op: a reduction operator.
        data: a tile.
        axis: the axes, which end with the last one and do not hold axis 0.
        negate: write the negative.
        keepdims: that dst keeps the axes with extent 1.
        name: of the instruction.
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
    attrs = {"op": name, "axes": axes, "negate": negate}
    return Recipe("tensor_reduce", Engine.VECTOR, [out], [source], None, attrs)


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
        dst, data0, data1: tiles with as many partitions, and elements in each.
        initial: a number, or a (P, 1) float32 tile.
        op0, op1: arithmetic operators of two operands.
        reverse0, reverse1: the operands of the operator in the other order.
        name: of the instruction.
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
        attrs: dict[str, Any] = {"steps": ((names[0], reverse0), (names[1], reverse1))}
        if tile:
            walks.append(vector(call, "initial", initial, dst.shape[0], len(out[0])))
        else:
            attrs["initial"] = float(initial)
        return Recipe("tensor_tensor_scan", Engine.VECTOR, [out], walks, None, attrs)

    return NkiInstruction(session.issue(key, tensors, lower))


def bn_stats(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = count, mean and count * variance of the even elements of each partition, then of the
    odd ones.

    Args:
        dst: a tile of 6 elements a partition.
        data: a tile of up to 512 elements a partition.
        name: of the instruction.
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
        return _per_partition(call, "bn_stats", dst, data, 6)

    return NkiInstruction(session.issue(("bn_stats",), (dst, data), lower))


def bn_aggr(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = mean and variance, from triples of bn_stats.

    Args:
        dst: a tile of 2 elements a partition.
        data: a tile of triples (count, mean, count * variance).
        name: of the instruction.
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
        return _per_partition(call, "bn_aggr", dst, data, 2)

    return NkiInstruction(session.issue(("bn_aggr",), (dst, data), lower))


def rows_of(t: NkiTensor) -> tuple:
    """The walk of a tile with its free axes as they come."""
    shape, strides = merged(t._layout.shape[1:], t._layout.strides[1:])
    own = t._layout
    if not shape:
        shape, strides = (1,), (1,)
    return (own.shape[0], *shape), (own.strides[0], *strides)


def _per_partition(
    call: str, opcode: str, dst: NkiTensor, data: NkiTensor, count: int, attrs: dict | None = None
) -> Recipe:
    """An instruction that gives some elements a partition."""
    no_packed(call, dst=dst, data=data)
    if dst.shape[0] != data.shape[0] or free_of(dst) != count:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, data {data.describe()}",
            rule=f"dst has as many partitions, and {count} elements in each",
            fix=f"declare dst ({data.shape[0]}, {count})",
        )
    return Recipe(opcode, Engine.VECTOR, [rows_of(dst)], [rows_of(data)], None, attrs or {})


def _searched(call: str, data: NkiTensor, name: str = "data") -> None:
    if not 8 <= free_of(data) <= 16384 or data.ndim > 3:
        raise ShapeError(
            f"{call}: {name} is {data.describe()}",
            rule="it has up to 3 axes, and 8 to 16384 elements a partition",
            fix="pad it, or call it on parts",
        )


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = the 8 largest elements of each partition, in descending order.

    Args:
        dst: a tile of 8 elements a partition.
        src: a tile of 8 to 16384 elements a partition.
        name: of the instruction.
    """

    def lower() -> Recipe:
        check_on_chip("nisa.max8", dst=dst, src=src)
        _searched("nisa.max8", src, "src")
        return _per_partition("nisa.max8", "max8", dst, src, 8)

    return NkiInstruction(current().issue(("max8",), (dst, src), lower))


def nc_find_index8(
    dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst = where each of 8 values is in its partition of data; all ones where it is not.

    Equal values get successive places.

    Args:
        dst: a uint16 or uint32 tile of 8 elements a partition.
        data: a tile of 8 to 16384 elements a partition.
        vals: a tile of 8 elements a partition.
        name: of the instruction.
    """

    def lower() -> Recipe:
        call = "nisa.nc_find_index8"
        check_on_chip(call, dst=dst, data=data, vals=vals)
        _searched(call, data)
        if dst.dtype not in ("uint16", "uint32"):
            raise DTypeError(
                f"{call}: dst is {dst.describe()}",
                rule="places are uint16 or uint32",
                fix="declare dst so",
            )
        _eight(call, vals)
        recipe = _per_partition(call, "nc_find_index8", dst, vals, 8)
        return Recipe(
            "nc_find_index8", Engine.VECTOR, recipe.walks[:1], [rows_of(data), rows_of(vals)]
        )

    return NkiInstruction(current().issue(("nc_find_index8",), (dst, data, vals), lower))


def _eight(call: str, vals: NkiTensor) -> None:
    if free_of(vals) != 8:
        raise ShapeError(
            f"{call}: vals is {vals.describe()}",
            rule="it looks for 8 values in each partition",
            fix="pass a (P, 8) tile, as nisa.max8 makes",
        )


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data with the first occurrence of each of 8 values replaced, from the last value on.

    Args:
        dst, data: tiles of as many elements.
        vals: a tile of 8 elements a partition.
        imm: what they are replaced by.
        dst_idx: a uint16 or uint32 tile of 8 elements a partition, for where they were.
        name: of the instruction.
    """
    outs = (dst,) if dst_idx is None else (dst, dst_idx)
    key = ("nc_match_replace8", constant(imm), dst_idx is None)

    def lower() -> Recipe:
        call = "nisa.nc_match_replace8"
        check_on_chip(call, dst=dst, data=data, vals=vals, dst_idx=dst_idx)
        _searched(call, data)
        out, source = same_domain(call, dst, data)
        walks = [out] if dst_idx is None else [out, rows_of(dst_idx)]
        return Recipe(
            "nc_match_replace8",
            Engine.VECTOR,
            walks,
            [source, rows_of(vals)],
            None,
            {"imm": float(imm)},
        )

    return NkiInstruction(current().issue(key, (*outs, data, vals), lower))


def nc_stream_shuffle(
    dst: NkiTensor, src: NkiTensor, shuffle_mask: list[int], name: str | None = None
) -> NkiInstruction:
    """dst[32 q + i] = src[32 q + shuffle_mask[i]]: partitions are moved within each quadrant.

    Args:
        dst, src: tiles of one dtype, with as many elements a partition.
        shuffle_mask: 32 partitions of a quadrant; 255 leaves that partition of dst as it is.
        name: of the instruction.
    """
    session = current()
    dst, src = settled_pair(session, dst, src)
    mask = tuple(shuffle_mask)
    key = ("nc_stream_shuffle", mask)

    def lower() -> Recipe:
        call = "nisa.nc_stream_shuffle"
        check_on_chip(call, dst=dst, src=src)
        if len(mask) != 32 or any(not (0 <= m < 32 or m == 255) for m in mask):
            raise ParameterError(
                f"{call}: shuffle_mask {list(mask)}",
                rule="it has 32 entries, each a partition 0 to 31, or 255 to leave one as it is",
                fix="give all 32",
            )
        if dst._layout.type.stored != src._layout.type.stored or free_of(dst) != free_of(src):
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, src {src.describe()}",
                rule="both have one dtype, and as many elements a partition",
                fix="slice or convert one",
            )
        (shape, own), (_, other) = common(
            call,
            (dst, src),
            tuple(merged(t.shape[1:], t._layout.strides[1:]) for t in (dst, src)),
        )
        targets, sources = [], []
        for p in range(dst.shape[0]):
            quadrant, lane = divmod(p, 32)
            if mask[lane] != 255:
                at = quadrant * 32 + mask[lane]
                if at >= src.shape[0]:
                    at = mask[lane] if src.shape[0] <= 32 else None
                if at is None or at >= src.shape[0]:
                    continue
                targets.append(p)
                sources.append(at)
        out = ((dst.shape[0], *shape), (dst._layout.strides[0], *own))
        source = ((src.shape[0], *shape), (src._layout.strides[0], *other))
        whole = len(targets) == dst.shape[0]
        return Recipe(
            "nc_stream_shuffle",
            Engine.VECTOR,
            [out],
            [source] if whole else [source, out],
            None,
            {"moves": (tuple(targets), tuple(sources))},
        )

    whole = len(mask) == 32 and 255 not in mask
    recipe_tensors = (dst, src) if whole and _covers(dst, src, mask) else (dst, src, dst)
    return NkiInstruction(session.issue(key, recipe_tensors, lower))


def _covers(dst: NkiTensor, src: NkiTensor, mask: tuple[int, ...]) -> bool:
    """Whether each partition of dst gets one of src."""
    few = src.shape[0] <= 32
    for p in range(dst.shape[0]):
        at = mask[p % 32] if few else p // 32 * 32 + mask[p % 32]
        if at >= src.shape[0]:
            return False
    return True


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
        dst, src: tiles with as many partitions, and elements in each; no 32-bit integers.
        op0: an arithmetic operator.
        op1: nl.add, nl.subtract, nl.multiply, nl.maximum or nl.minimum.
        imm0: a number, or a (P, 1) float32 tile.
        imm1: with load_reduce, what it begins with.
        reduce_cmd: reset_reduce, reduce or load_reduce.
        name: of the instruction.
    """
    session = current()
    call = "nisa.tensor_scalar_cumulative"
    check_on_chip(call, dst=dst, src=src)
    for t in (dst, src):
        if t.dtype in _WIDE:
            raise DTypeError(
                f"{call} of {t.describe()}",
                rule="it takes no 32-bit integers",
                fix="convert to float32",
            )
    machine = session.trace.machine
    running = op_name(call, op1, _ADD_UP | {"subtract"}, machine)
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
    tile0, tile1 = _is_tensor(imm0), _is_tensor(start)
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
        attrs = {
            "step": name,
            "running": running,
            "fresh": reduce_cmd.name == "reset_reduce",
        }
        operands = (None, None if tile0 else float(imm0), None if tile1 else float(start))
        last = vector(call, "accumulator", kept, lanes, axes)
        return Recipe(
            "tensor_scalar_cumulative", Engine.VECTOR, [out, last], walks, operands, attrs
        )

    return NkiInstruction(session.issue(key, tuple(tensors), lower))


def _session() -> Session:
    return current()


__all__ = [
    "bn_aggr",
    "bn_stats",
    "max8",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_stream_shuffle",
    "reciprocal",
    "scalar_tensor_tensor",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
]

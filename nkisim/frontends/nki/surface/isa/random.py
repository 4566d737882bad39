"""Random numbers. The hardware's generators are not documented: here each core has one of its own,
the same in every run."""

from __future__ import annotations

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki import dtypes
from nkisim.frontends.nki.declare import make
from nkisim.frontends.nki.operands import (
    check_generation,
    check_on_chip,
    free_of,
    same_domain,
    vector,
)
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.copies import memset, tensor_copy, wrong_engine
from nkisim.frontends.nki.surface.isa.enums import ENGINES, NkiInstruction, engine
from nkisim.frontends.nki.surface.isa.vector.checks import constant, rows_of
from nkisim.frontends.nki.surface.isa.vector.elementwise import tensor_scalar, tensor_tensor
from nkisim.frontends.nki.surface.operators import add, multiply, subtract
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.random import Uniform

_STATE = "random state"


def _state() -> NkiTensor:
    return current().state_tensor(_STATE, (1, 2), "int32")


def _seeded() -> NkiTensor:
    """The generator, seeded with 0 if nothing has been."""
    session = current()
    known = (session.program, _STATE) in session.state
    state = _state()
    if not known:
        one = ((1, 2), (2, 1))
        session.issue(
            ("random_seed", 0),
            (state,),
            lambda: Recipe("random_seed", Engine.VECTOR, [one], [], (0,)),
        )
    return state


_ONE = ((1, 2), (2, 1))


def uniform(dst: NkiTensor, low: float, high: float) -> NkiInstruction:
    """dst = uniform numbers in [low, high)."""
    session = current()
    state = _seeded()

    def lower() -> Recipe:
        check_on_chip("random numbers", dst=dst)
        settings = Uniform(low=float(low), high=float(high))
        return Recipe("uniform", Engine.VECTOR, [rows_of(dst), _ONE], [_ONE], None, settings)

    key = ("uniform", constant(low), constant(high))
    return NkiInstruction(session.issue(key, (dst, state, state), lower))


def rng(dst: NkiTensor, engine: engine = engine.vector, name: str | None = None) -> NkiInstruction:
    """dst = random bits.

    Args:
        dst: a tile of an integer type.
        engine: vector, or gpsimd on NeuronCore-v3 and later.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        DTypeError: dst is of no integer type.
        ParameterError: an engine that has no generator.
    """
    session = current()
    call = "nisa.rng"
    state = _seeded()

    def lower() -> Recipe:
        check_on_chip(call, dst=dst)
        if dst.dtype not in dtypes.INTEGERS:
            raise DTypeError(
                f"{call}: dst is {dst.describe()}",
                rule="random bits fill an integer type",
                fix="declare dst with nl.uint32, or use nl.rand for floats",
            )
        if engine.name not in session.trace.machine.abilities.random_engines:
            raise wrong_engine(call, engine, "vector (gpsimd too on NeuronCore-v3 and later)")
        return Recipe("random_bits", ENGINES[engine], [rows_of(dst), _ONE], [_ONE], asked=True)

    return NkiInstruction(session.issue(("rng", engine), (dst, state, state), lower))


def rand2(
    dst: NkiTensor,
    min: NkiTensor | float,
    max: NkiTensor | float,
    name: str | None = None,
) -> NkiInstruction:
    """dst = uniform numbers in [min, max] (NeuronCore-v4).

    Args:
        dst: a tile of a float type.
        min, max: numbers, or (P, 1) float32 tiles; min below max.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: a bound that is neither a number nor one element a partition.
        DTypeError: a packed type.
        ParameterError: on a NeuronCore before v4, or a min that is not below max.
    """
    call = "nisa.rand2"
    check_generation(call, current().trace.machine, "use nisa.rng, or nl.rand")
    if not isinstance(min, NkiTensor) and not isinstance(max, NkiTensor):
        if not min < max:
            raise ParameterError(
                f"{call}: min={min}, max={max}", rule="min is below max", fix="swap them"
            )
        return uniform(dst, min, max)
    uniform(dst, 0.0, 1.0)
    span = make((dst.shape[0], 1), "float32", MemoryRegion.sbuf)
    if isinstance(max, NkiTensor) and isinstance(min, NkiTensor):
        tensor_tensor(span, max, min, subtract)
    elif isinstance(max, NkiTensor):
        tensor_scalar(span, max, subtract, min)
    else:
        tensor_scalar(span, min, subtract, max, reverse0=True)
    return tensor_scalar(dst, dst, multiply, span, op1=add, operand1=min)


def dropout(
    dst: NkiTensor, data: NkiTensor, prob: NkiTensor | float, name: str | None = None
) -> NkiInstruction:
    """dst = data with elements set to 0 at a probability.

    Args:
        dst, data: tiles of one dtype, with equally many elements.
        prob: a number, or a (P, 1) tile: how likely an element is dropped.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different sizes, or a prob that is neither a number nor one element
            a partition.
        DTypeError: data and dst of two types, or a prob that is not float32 with integers.
    """
    session = current()
    call = "nisa.dropout"
    state = _seeded()
    tile = isinstance(prob, NkiTensor)

    def lower() -> Recipe:
        check_on_chip(call, dst=dst, data=data)
        if dst._layout.type.stored != data._layout.type.stored:
            raise DTypeError(
                f"{call}: dst is {dst.describe()}, data {data.describe()}",
                rule="both have one dtype",
                fix="declare dst with that of data",
            )
        if tile and data.dtype in dtypes.INTEGERS and prob.dtype != "float32":
            raise DTypeError(
                f"{call}: prob is {prob.describe()}, data {data.describe()}",
                rule="with data of an integer type, prob is float32",
                fix="convert prob with nisa.tensor_copy into a float32 tile",
            )
        out, source = same_domain(call, dst, data)
        walks = [source]
        if tile:
            walks.append(vector(call, "prob", prob, data.shape[0], len(source[0])))
        operands = (None, None if tile else float(prob), None)
        return Recipe("dropout", Engine.VECTOR, [out, _ONE], [*walks, _ONE], operands)

    key = ("dropout", None if tile else constant(prob))
    tensors = (dst, state, data, prob, state) if tile else (dst, state, data, state)
    return NkiInstruction(session.issue(key, tensors, lower))


def set_rng_seed(src_seeds: NkiTensor, name: str | None = None) -> NkiInstruction:
    """Seed the generator of the Vector Engine.

    Args:
        src_seeds: a (1, 1) tile of a 32-bit type, in SBUF or PSUM.
        name: of the instruction.

    Raises:
        DTypeError: a seed that has not 32 bits.
        ParameterError: no (1, 1) tile in SBUF or PSUM.
    """
    session = current()
    call = "nisa.set_rng_seed"
    if not isinstance(src_seeds, NkiTensor) or src_seeds.size != 1:
        given = src_seeds.describe() if isinstance(src_seeds, NkiTensor) else repr(src_seeds)
        raise ParameterError(
            f"{call}({given})",
            rule="a seed is a (1, 1) tile of a 32-bit type, in SBUF or PSUM",
            fix="fill one with nisa.memset",
        )

    def lower() -> Recipe:
        check_on_chip(call, src_seeds=src_seeds)
        if src_seeds._layout.type.itemsize != 4:
            raise DTypeError(
                f"{call}: {src_seeds.describe()}", rule="a seed has 32 bits", fix="convert it"
            )
        return Recipe("random_seed", Engine.VECTOR, [_ONE], [rows_of(src_seeds)])

    return NkiInstruction(session.issue(("set_rng_seed",), (_state(), src_seeds), lower))


def _lanes(call: str, t: NkiTensor, where: engine, writes: bool = False) -> None:
    machine = current().trace.machine
    if where.name not in machine.abilities.random_state_engines:
        raise ParameterError(
            f"{call}: engine.{where.name} on {machine.name}",
            rule="GpSimd on NeuronCore-v3, GpSimd or Vector on NeuronCore-v4",
            fix="name one of these",
        )
    words = 6 if where.name == "gpsimd" else 24
    check_on_chip(call, state=t)
    reads_psum = writes and machine.abilities.random_state_in_psum and where.name == "vector"
    if t._layout.space is not Space.SBUF and not (t._layout.space is Space.PSUM and reads_psum):
        raise MemorySpaceError(
            f"{call}: {t.describe()} with engine.{where.name} on {machine.name}",
            rule="the state is in SBUF; the Vector Engine of NeuronCore-v4 may write it to PSUM",
            fix="use an SBUF tile",
        )
    if t.dtype != "uint32" or free_of(t) != words:
        raise ShapeError(
            f"{call}: {t.describe()}",
            rule=f"the state of that engine is {words} uint32 numbers a partition",
            fix=f"declare a uint32 (partitions, {words}) tile",
        )


def rand_set_state(
    src_seeds: NkiTensor, engine: engine = engine.gpsimd, name: str | None = None
) -> NkiInstruction:
    """Load the state of an engine's generator.

    Args:
        src_seeds: a uint32 SBUF tile, 6 numbers a partition for GpSimd, 24 for Vector.
        engine: gpsimd, or vector on NeuronCore-v4.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: a state that is not in SBUF.
        ShapeError: not as many numbers a partition as the engine's state has.
        ParameterError: an engine without a state that can be set.
    """
    _lanes("nisa.rand_set_state", src_seeds, engine)
    return set_rng_seed(src_seeds[0:1, 0:1])


def rand_get_state(
    dst: NkiTensor, engine: engine = engine.gpsimd, name: str | None = None
) -> NkiInstruction:
    """Read the state of an engine's generator.

    Args:
        dst: a uint32 tile, 6 numbers a partition for GpSimd, 24 for Vector. Here the first number
            is the seed, and the others are 0.
        engine: gpsimd, or vector on NeuronCore-v4.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: a dst that is not in SBUF, or PSUM where the engine writes it.
        ShapeError: not as many numbers a partition as the engine's state has.
        ParameterError: an engine without a state that can be read.
    """
    _lanes("nisa.rand_get_state", dst, engine, writes=True)
    memset(dst, 0)
    return tensor_copy(dst[0:1, 0:2], _seeded().view("uint32"))


__all__ = [
    "dropout",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "rng",
    "set_rng_seed",
]

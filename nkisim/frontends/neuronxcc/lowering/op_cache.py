"""The memo of lowered calls: a call on operands like those of an earlier one emits the same again.

A kernel calls few operations on operands of few forms, thousands of times. Most of the work of a
call is to look at its operands: do they fit together, which instruction takes them, what is the
result? The answers follow from the forms of the tiles and from the other arguments alone, which
are the memo key of the call. The value of the memo is a `Note`.

An example: a loop calls `c = nl.add(a, b)` on tiles float32[128, 512] in SBUF.

1. The first call runs the operation. It checks the operands, makes the tile `c` and emits
   `tensor_tensor(add)` on the Vector Engine. The memo keeps only that the key was seen: many keys
   never come again.
2. The second call has the same key: `nl.add`, and for each operand its form, its dtype and the kind
   of its buffer. It runs the operation again, and keeps what that did as a note (`_record`):

       makes   a tile float32[128, 512] in SBUF, without a name
       writes  tensor_tensor(add), outs = pool[2], ins = pool[0], pool[1]
       gives   pool[2]

   The pool of a call is the list of its tensors: first its arguments, here [a, b], then the tiles
   that it makes, here [c], then views of these.
3. The third and all later calls do what the note says (`_replay`): put their own a and b into a new
   pool, append a tile made like c, emit a copy of the instruction on operands picked from the pool
   by position, and return pool[2].

What depends on the place in the kernel is in no note. `_replay` gives the instruction the kernel
line and the loop iterations of its own call, and has the checker look at it, as at any other: `a`
may not have been written this time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import KernelError, Location, locate
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.access import Form
from nkisim.ir.instruction import Instruction, picker
from nkisim.ir.memory import Buffer, PartitionDim
from nkisim.trace.tracer import Tracer, current_if_any

# Arguments of these types are what they are, in all iterations.
_PLAIN = frozenset(
    {NoneType, bool, int, float, str, type, FunctionType, BuiltinFunctionType, np.ufunc}
    | {type(np.sum)}
)
_SIZES = frozenset({int, PartitionDim})
_UNSEEN, _SEEN_ONCE = object(), object()  # calls that were not made before, and those made once
_remembered: set[Callable] = set()


class Write(NamedTuple):
    """An instruction of a call.

    Attributes:
        model: the instruction, without operands.
        outs, ins, tiles_in: functions that pick its operands from the pool of the call; `ins` is
            `tiles_in` itself where all inputs are tensors.
        older: a function that picks its operands that were there before the call; it is `tiles_in`
            itself where these are all tensors that it reads, and no others.
        is_result: whether it overwrites whole tiles that the call made, and nothing else.
    """

    model: Instruction
    outs: Callable[[list], tuple]
    ins: Callable[[list], tuple]
    tiles_in: Callable[[list], tuple]
    older: Callable[[list], tuple]
    is_result: bool


class Note(NamedTuple):
    """The effect of a call, by positions in a pool of its tensors: its arguments, then the tensors
    that the note lists, in the order of these attributes.

    Attributes:
        makes: the tiles that the call makes, each with the position of the argument that it is
            named after, or -1.
        hidden: name, shape and type of the state of the hardware that it uses.
        views: the position of a tensor in the pool, and the form of a view of it.
        numbers: operands of its instructions that are numbers.
        writes: its instructions.
        gives: the position of its result; -1 if it has none.
    """

    makes: tuple[tuple[Tensor, int], ...]
    hidden: tuple[tuple[str, tuple[int, ...], np.dtype], ...]
    views: tuple[tuple[int, Form], ...]
    numbers: tuple[float, ...]
    writes: tuple[Write, ...]
    gives: int


def remembered(operation: Callable) -> Callable:
    """Decorates an operation that looks at its arguments only: at the forms, types and memories of
    tensors, not at what they hold or where they start; at what masks leave, and at the values of
    the others."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        key: list = [operation]
        tensors: list[Tensor] = []
        tracer = current_if_any()
        if (
            tracer is None
            or not _describe(args, key, tensors)
            or (kwargs and not _describe_named(kwargs, key, tensors))
        ):
            return operation(*args, **kwargs)
        if len(tensors) > 1:
            _mark_same(tensors, key)
        name = tuple(key)
        notes = tracer.lowered_calls
        note = notes.get(name, _UNSEEN)
        if type(note) is Note:
            return _replay(tracer, note, tensors, locate())
        if note is None:
            return operation(*args, **kwargs)
        if note is _UNSEEN:  # many are never made again: with other numbers each time
            notes[name] = _SEEN_ONCE
            return operation(*args, **kwargs)
        first = len(tracer.trace.instructions), len(tracer.trace.buffers)
        surprises = tracer.surprises
        result = operation(*args, **kwargs)
        plain = tracer.surprises == surprises
        notes[name] = _record(tracer, tensors, *first, result) if plain else None
        return result

    _remembered.add(call)
    return call


def wrapped(operation: Callable, wrap: Callable[[Callable], Callable]) -> Callable:
    """`wrap(operation)`, remembered if `operation` is: what `wrap` adds is not done again either,
    so that must look at arguments only, too."""
    if operation in _remembered:
        return remembered(wrap(operation.__wrapped__))
    return wrap(operation)


def _describe(arguments: Iterable[Any], key: list, tensors: list[Tensor]) -> bool:
    """Add to `key` all properties of the arguments that an operation may look at, and to `tensors`
    the tensors among them. False if arguments of such types have no memo key."""
    for x in arguments:
        kind = type(x)
        if kind is Tensor:
            buffer = x.buffer
            named = buffer.name != ""  # so is what is named after it
            key += (x.form, x.dtype, buffer.kind, buffer.declared, named)
            tensors.append(x)
        elif kind is float:
            key += (kind, x or str(x))  # 0.0 equals -0.0
        elif kind in _PLAIN or isinstance(x, np.dtype | Enum):
            key += (kind, x)
        elif kind is IndexTensor and type(x.offset) is int:
            key += (kind, x.shape, x.coefs, x.offset)
        elif kind is Mask:
            if not _describe_mask(x, key):
                return False
        elif kind in (tuple, list) and _SIZES.issuperset(kinds := [*map(type, x)]):
            key += (kind, *x, *kinds)
        else:
            return False
    return True


def _describe_mask(mask: Mask, key: list) -> bool:
    """Add to `key` which part of each axis a mask leaves. False if it couples axes, or if that may
    differ in other iterations."""
    for term in mask.terms:
        shape, offset = term.shape, term.offset
        walked = [(d, c) for d, c in enumerate(term.coefs) if c and shape[d] > 1]
        if len(walked) > 1 or type(offset) is not int:
            return False
        if not walked:
            key += (Mask, shape, offset < 0)
            continue
        ((d, c),) = walked
        if c > 0:  # offset + c*i >= 0
            key += (Mask, shape, d, "from", max(0, -(offset // c)))
        else:
            key += (Mask, shape, d, "to", min(shape[d], offset // -c + 1))
    return True


def _describe_named(named: dict[str, Any], key: list, tensors: list[Tensor]) -> bool:
    key += named
    return _describe(named.values(), key, tensors)


def _mark_same(tensors: list[Tensor], key: list) -> None:
    """Add to `key` which of the tensors begin where another one does."""
    for n in range(1, len(tensors)):
        x = tensors[n]
        for m in range(n):
            y = tensors[m]
            if y.buffer is x.buffer and y.offsets == x.offsets:
                key += (m, n)


def _replay(tracer: Tracer, note: Note, pool: list, location: Location | None) -> Tensor | None:
    """Emit the instructions of a note on the operands of another call.

    Args:
        tracer: what traces the kernel.
        note: on a call with arguments alike.
        pool: the tensors among the arguments.
        location: the kernel line.
    """
    makes, hidden, views, numbers, writes, gives = note
    tracer.restore(pool)
    for model, namesake in makes:
        name = model.buffer.name if namesake < 0 else pool[namesake].derived_name
        pool.append(tracer.make_again(model, name, location))
    if hidden:
        pool += [tracer.hidden(*state) for state in hidden]
    for of, form in views:
        x = pool[of]
        pool.append(x.view_of(form, x.offsets))
    pool += numbers
    program, loops, check = tracer.program, tracer.loops, tracer.checker.on_instruction
    instructions = tracer.trace.instructions
    try:  # as `Tracer.emit` does, for all of them
        for model, outs, ins, tiles_in, older, is_result in writes:
            tiles = tiles_in(pool)
            reads = tiles if ins is tiles_in else ins(pool)
            instr = model.again(outs(pool), reads, tiles, program, loops, location)
            check(instr, tiles if older is tiles_in else older(pool), is_result)
            instructions.append(instr)
    except KernelError as error:
        error.instruction = instr
        raise
    return None if gives < 0 else pool[gives]


def _record(
    tracer: Tracer, tensors: list[Tensor], instruction: int, buffer: int, result: Any
) -> Note | None:
    """The note of a call that has just returned; None if no note can describe its effect.

    Args:
        tracer: what traces the kernel.
        tensors: its arguments.
        instruction: the position of the first one that it wrote down.
        buffer: the number of the first one that it made.
        result: what it returned.
    """
    trace = tracer.trace
    written = trace.instructions[instruction:]
    made = [b for b in trace.buffers[buffer:] if b.number not in trace.hidden]
    names = [x.derived_name for x in tensors]
    if (
        any([len(x.shape) < 2 for x in tensors])  # whose axes mean different things
        or any([not b.space.on_chip or b.place is not None for b in made])
        or any([b.name and tensors and b.name not in names for b in made])
        or any([i.where is not None or i.where_out is not None for i in written])
        or not (result is None or isinstance(result, Tensor))
    ):
        return None
    operands = [x for i in written for x in i.outs + i.ins]
    tiles = [x for x in operands if isinstance(x, Tensor)]
    known = {x.buffer for x in tensors}.union(made)
    states = {b: None for x in tiles if (b := x.buffer) not in known and b.number in trace.hidden}
    pool: list = [*tensors, *map(Tensor, made), *map(Tensor, states)]
    views = []
    for x in tiles if result is None else [*tiles, result]:
        if _position(x, pool) is None:
            source = _source(x, pool)
            if source is None:
                return None
            views.append((source, x.form))
            pool.append(x)
    numbers = [x for x in operands if not isinstance(x, Tensor)]
    at = iter(range(len(pool), len(pool) + len(numbers)))
    writes = []
    for i in written:
        outs = [_position(x, pool) for x in i.outs]
        ins = [_position(x, pool) if isinstance(x, Tensor) else next(at) for x in i.ins]
        own = [pool[n].buffer in made and pool[n].covers_buffer for n in outs]
        tiles_in = [n for n, x in zip(ins, i.ins, strict=True) if isinstance(x, Tensor)]
        older = [n for n in (*outs, *tiles_in) if pool[n].buffer not in made]
        tiles = picker(tiles_in)
        writes.append(
            Write(
                _without_operands(i),
                picker(outs),
                tiles if ins == tiles_in else picker(ins),
                tiles,
                tiles if older == tiles_in else picker(older),
                all(own) and not i.spec.partial,
            )
        )
    return Note(
        tuple([(Tensor(b.again(0, None, ())), _namesake(b, names)) for b in made]),
        tuple([(b.name, b.shape, b.dtype) for b in states]),
        tuple(views),
        tuple(numbers),
        tuple(writes),
        -1 if result is None else _position(result, pool),
    )


def _without_operands(i: Instruction) -> Instruction:
    model = i.again((), (), (), 0, (), None)
    model.model = None  # a note outlives its trace, and must not keep the tensors of it
    return model


def _namesake(buffer: Buffer, names: list[str]) -> int:
    return names.index(buffer.name) if buffer.name and buffer.name in names else -1


def _position(x: Tensor, pool: list[Tensor]) -> int | None:
    """The position of a tensor in the pool of a call; None if it is not there."""
    return next((n for n, y in enumerate(pool) if y.same_elements(x)), None)


def _source(x: Tensor, pool: list[Tensor]) -> int | None:
    """The position in the pool of a tensor of which `x` is a view: it has the same start and base
    axes. None if there is none."""
    return next(
        (
            n
            for n, y in enumerate(pool)
            if y.buffer is x.buffer
            and y.offsets == x.offsets
            and y.base_shape == x.base_shape
            and y.dtype == x.dtype
            and type(x) is Tensor
        ),
        None,
    )

"""What a program moves through HBM when a compiler fuses all its element-wise operations.

XLA's CPU backend fuses for another machine, and casts products of 16 bits to float32. So the bytes
are counted here, on the HLO that a framework emits, by these rules:

- Element-wise operations, slices and paddings are computed where their result is used, and never
  written. Whoever uses a slice reads its array once, whole.
- Element-wise operations after a product or a reduction, of its shape, are computed with it, up to
  one that all of its uses go through; that one's result is written in the place of its own.
- Everything else is written once, and read once by each that uses it: results of reductions,
  products, gathers, scatters and transposes, operands of a product, the results of the program.
- A scatter into an array that nothing else uses is done in place: it reads and writes the elements
  that it changes.
- A call is inlined.

This is what element-wise fusion leaves, as XLA's loop fusion; it is no floor for other
compilers. One that keeps a row in SBUF reads it once where a reduction and its use read it
twice here.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from nkibook.hlo.parse import Computation, Instruction, ParsedModule
from nkibook.hlo.traffic import Operation, flops_of

_ARITHMETIC = """abs add and atan2 cbrt ceil clamp compare complex convert cosine divide erf
exponential exponential-minus-one floor imag is-finite log log-plus-one logistic map maximum minimum
multiply negate not or power real remainder round-nearest-afz round-nearest-even rsqrt select
shift-left shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor"""
_VIEWS = """bitcast bitcast-convert broadcast constant copy dynamic-slice get-tuple-element iota
opt-barrier pad reshape slice"""

ELEMENTWISE = frozenset(f"{_ARITHMETIC} {_VIEWS} tuple".split())
"""Operations that are computed where their result is used. Views of the same elements are among
them; a transpose is not, since its elements move."""

_OPERANDS_IN_MEMORY = frozenset({"dot", "convolution", "custom-call", "sort", "scatter"})
_WITH_WHAT_FOLLOWS = frozenset({"dot", "convolution", "reduce", "reduce-window"})
_FOLLOW = ELEMENTWISE - {"tuple", "get-tuple-element", "broadcast"}
_SOURCES = frozenset({"constant", "iota"})


def fused_operations(module: ParsedModule) -> Iterator[Operation]:
    """The passes over memory of a module that is fused by the rules of `nkibook.hlo.fusion`.

    Yields:
        What one pass reads and writes. `opcode` is that of the operation whose result is written,
        "fusion" where it is element-wise; `flops` are those of all products in the pass.
    """
    computation = _inlined({c.name: c for c in module.computations}, module.entry)
    written = _written(computation)
    # What each value is made of: arrays in memory with their bytes, and the products on the way.
    made_of: dict[str, dict[str, int]] = {}
    products: dict[str, dict[str, int]] = {}
    uses = Counter(name for i in computation.instructions for name in set(i.operands))
    for i in computation.instructions:
        read: dict[str, int] = {}
        for name in () if i.opcode in _SOURCES else i.operands:  # an operand may give the shape
            read |= made_of[name]
        if i.opcode == "gather":  # not the whole table
            read = {i.operands[0]: i.shape.nbytes} | made_of[i.operands[1]]
        writes = i.shape.nbytes
        if i.opcode == "scatter" and _in_place(computation[i.operands[0]], written, uses):
            del read[i.operands[0]]
            changed = computation[i.operands[-1]].shape.dims
            writes = dataclasses.replace(i.shape, dims=changed).nbytes
            read["changed"] = writes
        flops = {i.name: flops_of(computation, i)}
        for name in i.operands:
            flops |= products[name]
        if i.name not in written:
            made_of[i.name], products[i.name] = read, flops
            continue
        made_of[i.name], products[i.name] = {i.name: i.shape.nbytes}, {}
        if i.opcode != "parameter":
            opcode = "fusion" if i.opcode in ELEMENTWISE else i.opcode
            yield Operation(
                opcode, i.shape, i.op_name, sum(read.values()), writes, sum(flops.values())
            )


def _in_place(operand: Instruction, written: set[str], uses: Counter[str]) -> bool:
    """Whether a scatter can change its first operand: a value of the program, with no other use."""
    mine = operand.name in written and operand.opcode != "parameter"
    return mine and uses[operand.name] == 1


def _written(computation: Computation) -> set[str]:
    """The arrays of a computation that stand in memory."""
    users: dict[str, list[Instruction]] = {i.name: [] for i in computation.instructions}
    for i in computation.instructions:
        for name in dict.fromkeys(i.operands):
            users[name].append(i)
    at = {i.name: n for n, i in enumerate(computation.instructions)}
    found = {_last(i, users, at) for i in computation.instructions if i.opcode not in ELEMENTWISE}
    kept = [computation.root]
    for i in computation.instructions:
        if i.opcode in _OPERANDS_IN_MEMORY:
            kept += [computation[name] for name in i.operands]
    while kept:
        i = kept.pop()
        if i.opcode in ("tuple", "get-tuple-element", "reshape", "bitcast"):
            kept += [computation[name] for name in i.operands]
        elif i.opcode not in _SOURCES:
            found.add(i.name)
    return found


def _last(i: Instruction, users: dict[str, list[Instruction]], at: dict[str, int]) -> str:
    """Whose result is written for `i`: its own, or that of the last operation computed with it."""
    last, within, used_outside = i.name, {i.name}, {i.name}
    while i.opcode in _WITH_WHAT_FOLLOWS:
        after = [u for name in used_outside for u in users[name] if u.name not in within]
        if not after:
            break
        first = min(after, key=lambda user: at[user.name])
        if first.opcode not in _FOLLOW or first.shape.dims != i.shape.dims:
            break
        within.add(first.name)
        used_outside = {
            name
            for name in (*used_outside, first.name)
            if name == first.name or any(u.name not in within for u in users[name])
        }
        if used_outside == {first.name}:
            last = first.name
    return last


def _inlined(called: dict[str, Computation], computation: Computation) -> Computation:
    """The computation with the instructions of what it calls in the place of each call."""
    found: list[Instruction] = []
    other: dict[str, str] = {}  # the name that stands for another one
    for i in computation.instructions:
        operands = tuple(other.get(name, name) for name in i.operands)
        if i.opcode != "call":
            found.append(dataclasses.replace(i, operands=operands))
            continue
        inner = _inlined(called, called[i.called_computations[0]])
        within = {p.name: operands[p.parameter_number or 0] for p in inner.parameters}
        for j in inner.instructions:
            if j.opcode == "parameter":
                continue
            within[j.name] = f"{i.name}/{j.name}"
            arguments = tuple(within[name] for name in j.operands)
            found.append(
                dataclasses.replace(j, name=within[j.name], operands=arguments, is_root=False)
            )
        other[i.name] = within[inner.root.name]
    if computation.root.opcode == "call":
        at = next(n for n, i in enumerate(found) if i.name == other[computation.root.name])
        found[at] = dataclasses.replace(found[at], is_root=True)
    return Computation(computation.name, tuple(found), computation.is_entry)

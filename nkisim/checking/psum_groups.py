"""Accumulation groups of matmuls that are open at once in one bank of PSUM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nkisim.checking.accumulation import is_accumulating
from nkisim.errors import AccumulationError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


class _Part(NamedTuple):
    """Partitions, and bytes of each, first and last."""

    lanes: tuple[int, int]
    bytes: tuple[int, int]

    def meets(self, other: _Part) -> bool:
        return _meet(self.lanes, other.lanes) and _meet(self.bytes, other.bytes)


def check_groups(trace: Trace) -> Iterator[AccumulationError]:
    """Each place that starts a group in a bank where another one goes on later: a published kernel
    lost sums so on a trn2 (NKI 0.6.0), and was right with a PSUM tile for each group. The
    architecture guide counts one open group a bank: "with 8 PSUM banks per partition, TensorE can
    have up to eight outstanding matmul accumulation groups". Neither is a rule that AWS states.

    In `import nki`, where the kernel says what starts a group. A tile's banks are counted from its
    first byte, since a tile that fits a bank lies in one.
    """
    if not trace.rules.destinations:
        return
    banks: dict[tuple[int, int, int], dict[_Part, tuple[int, Instruction]]] = {}
    told: set[object] = set()
    for at, instr in enumerate(trace.instructions):
        if instr.engine is not Engine.TENSOR or not instr.outs:
            continue
        out = instr.outs[0]
        if out.space is not Space.PSUM or 0 in out.shape:
            continue
        part = _part(out)
        bank = part.bytes[0] // trace.machine.psum_bank_bytes
        starts = banks.setdefault((instr.program, out.buffer.number, bank), {})
        if not is_accumulating(instr):
            for other in [p for p in starts if p != part and p.meets(part)]:
                del starts[other]
            starts[part] = at, instr
            continue
        own = max((begun for p, (begun, _) in starts.items() if p.meets(part)), default=None)
        if own is None:
            continue
        for other, (begun, starter) in starts.items():
            clash = begun > own and not other.meets(part) and _meet(other.lanes, part.lanes)
            if clash and starter.location not in told:
                told.add(starter.location)
                yield _error(starter, starter.outs[0], instr)


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _part(t: AccessPattern) -> _Part:
    """The bounding box of a view of a tile, whose base has the partitions on its first axis."""
    (first, last), *free = t.bounds()
    low = high = 0
    for (lo, hi), size in zip(free, t.base_shape[1:], strict=True):
        low, high = low * size + lo, high * size + hi
    return _Part((first, last), (low * t.itemsize, high * t.itemsize + t.itemsize - 1))


def _error(starter: Instruction, out: AccessPattern, later: Instruction) -> AccumulationError:
    return AccumulationError(
        f"{starter.label} starts an accumulation group in {out.describe()}, in a PSUM bank where "
        f"{later.label} at {later.location} goes on with another one",
        rule="AWS's architecture guide counts one open accumulation group for each bank, and a "
        "published kernel with several lost sums on a trn2 (NKI 0.6.0); no page of AWS forbids it, "
        "and the simulator keeps all sums",
        fix="declare a PSUM tile for each group, or finish one group before the next one starts",
        location=starter.location,
    )

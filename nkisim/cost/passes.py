"""What the compiler does to the instructions themselves, before they become tasks.

* A fill is done where its tile is first used, and not at all when nothing uses it, or when a matmul
  then accumulates into a zeroed PSUM tile: the first matmul overwrites.
* A computation that an iteration repeats on the same inputs as the one before is done once, and so
  is a load that an innermost loop repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nkisim.cost.storage import Access, Step, Storage
from nkisim.cost.tasks import Work
from nkisim.instruction import Instruction
from nkisim.memory import Role, Space
from nkisim.tensor import Tensor

# An iteration's result is kept for the next one when it takes at most this much of a partition.
_KEEP_BYTES = 32 * 1024

_NEVER_SHARED = frozenset({"nc_matmul", "nc_transpose", "memset", "rand", "random_seed", "dropout"})

DMA = frozenset(
    {"dma_copy", "dma_transpose", "dma_gather", "dma_scatter", "dma_scatter_add", "dma_accumulate"}
)


def sink_fills(steps: Sequence[Step], storage: Storage, work: Work) -> list[Step]:
    """Move fills of whole tiles to the first use of the tile; drop those without one, and those
    that a matmul makes needless."""
    waiting: dict[int, Step] = {}
    left_out = 0
    kept = []
    for step in steps:
        i = step.instr
        if i.opcode == "memset":
            t = i.outs[0]
            if not t.buffer.placed and storage.whole_tile(t):
                number = step.writes[0][0]
                # A second fill of a tile that nothing used in between replaces the first.
                waiting.pop(number, None)
                waiting[number] = step
                continue
        if waiting:
            for accesses in (step.writes, step.reads):
                for number, _ in accesses:
                    fill = waiting.pop(number, None)
                    if fill is None:
                        continue
                    filled = fill.instr
                    zeroed = filled.attrs["value"] == 0 and filled.outs[0].space is Space.PSUM
                    if i.opcode == "nc_matmul" and zeroed and accesses is step.writes:
                        left_out += 1
                    else:
                        kept.append(fill)
        kept.append(step)
    if left_out:
        work.choices["zeroing of a PSUM tile left to the first matmul"] += left_out
    if waiting:
        work.choices["fill of a tile that nothing uses left out"] += len(waiting)
    return kept


def without_repeats(steps: Sequence[Step], storage: Storage, work: Work) -> list[Step]:
    """Drop what the next iteration of a loop would compute again from the same inputs.

    A tile that is found to equal another one goes by that one's number from there on.
    """
    written: set[int] = set()
    rewritten: set[int] = set()
    for step in steps:
        for number, _ in step.writes:
            (rewritten if number in written else written).add(number)
    kinds = _Kinds(storage)
    version: dict[int, int] = defaultdict(int)  # of what is written more than once
    found: dict[tuple, tuple[int, tuple]] = {}
    same: dict[int, int] = {}
    kept = []
    for step in steps:
        i = step.instr
        if same:
            step = _renamed(step, same)
        kind = kinds.of(i) if i.loops else None
        if kind is not None and step.writes[0][0] not in rewritten:
            key: list = [kind]
            for (number, _), t in zip(step.reads, i.tiles_in, strict=True):
                b = t.buffer
                # The number of a tile of a blocked tensor tells which block it is.
                inside = t.offsets if number == b.number else t.offsets[b.par_axis :]
                key += (number, version.get(number, 0), inside)
            name = tuple(key)
            before = found.get(name)
            if before is not None and _next_iteration(before[1], i.loops, i.opcode == "dma_copy"):
                same[step.writes[0][0]] = before[0]
                found[name] = (before[0], i.loops)
                work.choices[f"{i.label} hoisted out of a loop"] += 1
                continue
            found[name] = (step.writes[0][0], i.loops)
        for number, _ in step.writes:
            if number in rewritten:
                version[number] += 1
        kept.append(step)
    return kept


def _renamed(step: Step, same: dict[int, int]) -> Step:
    """A step with the numbers that its tiles now go by."""
    for number, _ in step.reads + step.writes:
        if number in same:
            reads, writes = ([_rename(a, same) for a in part] for part in step[1:])
            return Step(step.instr, reads, writes)
    return step


def _rename(access: Access, same: dict[int, int]) -> Access:
    number, t = access
    if number not in same:
        return access
    # Another tile's coordinates may differ in the block; both are whole tiles.
    return same[number], None if t is None or t.buffer.par_axis else t


class _Kinds:
    """Numbers of the computations that a later iteration may share, up to the tiles they read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._numbers: dict[tuple, int] = {}
        self._known: dict[int, int | None] = {}  # by id of the instruction copied from

    def of(self, i: Instruction) -> int | None:
        """The number of an instruction's kind; None if it is not to be shared."""
        key = id(i.origin or i)
        if key not in self._known:
            self._known[key] = self._find(i)
        return self._known[key]

    def _find(self, i: Instruction) -> int | None:
        load = i.opcode == "dma_copy" and not i.ins[0].space.on_chip
        if i.opcode in _NEVER_SHARED or (i.opcode in DMA and not load) or len(i.outs) != 1:
            return None
        out = i.outs[0]
        b = out.buffer
        if (
            b.role is not Role.LOCAL
            or not b.space.on_chip
            or b.placed
            or i.where is not None
            or b.partition_bytes > _KEEP_BYTES
            or not self._storage.whole_tile(out)
        ):
            return None
        parts: list = [i.opcode, out.shape]
        for x in i.ins:
            parts += (id(x.coefs), x.shape) if isinstance(x, Tensor) else (x,)
        key = (*parts, *i.attrs.items())
        try:
            return self._numbers.setdefault(key, len(self._numbers))
        except TypeError:  # an attribute that cannot be compared
            return None


def _next_iteration(before: tuple, now: tuple, innermost: bool) -> bool:
    """Whether one loop only has moved on, by one iteration, between two places in the loops."""
    if len(before) != len(now):
        return False
    differ = [d for d, (a, b) in enumerate(zip(before, now, strict=True)) if a[1] != b[1]]
    if len(differ) != 1 or (innermost and differ[0] != len(now) - 1):
        return False
    (loop, i), (same, j) = before[differ[0]], now[differ[0]]
    return loop == same and j == i + 1

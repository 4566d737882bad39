"""What the compiler does to the instructions themselves, before they become tasks.

* A fill is done where its tile is first used, and not at all when nothing uses it, or when a matmul
  then accumulates into a zeroed PSUM tile: the first matmul overwrites.
* A computation that an iteration repeats on the same inputs as the one before is done once, and so
  is a load that an innermost loop repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nkisim.cost.storage import Storage
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


def sink_fills(instrs: Sequence[Instruction], storage: Storage, work: Work) -> list[Instruction]:
    """Move fills of whole tiles to the first use of the tile; drop those without one, and those
    that a matmul makes needless."""
    waiting: dict[int, Instruction] = {}
    left_out = 0
    kept = []
    for i in instrs:
        if i.opcode == "memset":
            t = i.outs[0]
            if not t.buffer.placed and storage.whole_tile(t):
                number = storage.number(t)
                # A second fill of a tile that nothing used in between replaces the first.
                waiting.pop(number, None)
                waiting[number] = i
                continue
        if waiting:
            for t in (*i.outs, *i.tiles_in):
                fill = waiting.pop(storage.number(t), None) if t.space.on_chip else None
                if fill is None:
                    continue
                zeroed = fill.attrs["value"] == 0 and fill.outs[0].space is Space.PSUM
                if i.opcode == "nc_matmul" and zeroed and t is i.outs[0]:
                    left_out += 1
                else:
                    kept.append(fill)
        kept.append(i)
    if left_out:
        work.choices["zeroing of a PSUM tile left to the first matmul"] += left_out
    if waiting:
        work.choices["fill of a tile that nothing uses left out"] += len(waiting)
    return kept


def without_repeats(
    instrs: Sequence[Instruction], storage: Storage, work: Work
) -> list[Instruction]:
    """Drop what the next iteration of a loop would compute again from the same inputs."""
    writes: dict[int, int] = defaultdict(int)
    for i in instrs:
        for t in i.outs:
            writes[storage.number(t)] += 1
    version: dict[int, int] = defaultdict(int)
    found: dict[tuple, tuple[int, tuple]] = {}
    kept = []
    for i in instrs:
        key = _identity(i, storage, writes, version) if i.loops else None
        if key is not None:
            before = found.get(key)
            innermost = i.opcode == "dma_copy"
            if before is not None and _next_iteration(before[1], i.loops, innermost):
                storage.equal(i.outs[0], before[0])
                found[key] = (before[0], i.loops)
                work.choices[f"{i.label} hoisted out of a loop"] += 1
                continue
            found[key] = (storage.number(i.outs[0]), i.loops)
        for t in i.outs:
            version[storage.number(t)] += 1
        kept.append(i)
    return kept


def _identity(i: Instruction, storage: Storage, writes: dict, version: dict) -> tuple | None:
    """What makes two instructions the same computation; None if it cannot be shared."""
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
        or writes[storage.number(out)] != 1
        or not storage.whole_tile(out)
    ):
        return None
    parts: list = [i.opcode, out.shape]
    for x in i.ins:
        if isinstance(x, Tensor):
            number = storage.number(x)
            inside = x.offsets[x.buffer.par_axis :] if x.space.on_chip else x.offsets
            parts += (number, version[number], inside, id(x.coefs), x.shape)
        else:
            parts.append(x)
    if i.attrs:
        parts += i.attrs.items()
    key = tuple(parts)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _next_iteration(before: tuple, now: tuple, innermost: bool) -> bool:
    """Whether one loop only has moved on, by one iteration, between two places in the loops."""
    if len(before) != len(now):
        return False
    differ = [d for d, (a, b) in enumerate(zip(before, now, strict=True)) if a[1] != b[1]]
    if len(differ) != 1 or (innermost and differ[0] != len(now) - 1):
        return False
    (loop, i), (same, j) = before[differ[0]], now[differ[0]]
    return loop == same and j == i + 1

"""What a timeline says, in words: what holds the kernel up, where, and what could be gained.

A gain is what the model gives for the same kernel with that one thing changed, and nothing else:
see `nkisim.report.whatif`. What it may cost to make the change is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from nkisim.errors import Location
from nkisim.ir.memory import Space
from nkisim.report.engine_findings import (
    few_lanes,
    small_tiles,
    tables,
    two_inputs,
    wide_strides,
)
from nkisim.report.fusion_findings import fusable
from nkisim.report.gains import LEAST, Finding
from nkisim.report.matmul_findings import (
    fp32_matmul,
    short_matmuls,
    sums_outside,
    sums_over_partitions,
)
from nkisim.report.memory_findings import (
    converting,
    exposed,
    few_loads,
    few_queues,
    kept_loads,
    loaded_again,
    psum_spills,
    short_runs,
    spills,
)
from nkisim.schedule.scheduler import MORE_THAN_THERE_IS

if TYPE_CHECKING:
    from nkisim.report.times import Times, Use

_FAR, _NEAR = 0.6, 0.8  # the busiest resource: busy for less is far from, for more near its limit
_GOOD_PART = 0.2  # of the body: what is waited for that long is named


def find(timeline: Times) -> list[Finding]:
    """The findings of a timeline: first what bounds it, then gains, the largest first."""
    found = [_bottleneck(timeline), *_overcommitted(timeline), *kept_loads(timeline)]
    lanes = list(few_lanes(timeline))
    most = max([f.gain_us for f in lanes], default=0.0)
    small = list(small_tiles(timeline))
    least = LEAST * timeline.latency_us
    gains = [
        *two_inputs(timeline),
        *wide_strides(timeline),
        *fp32_matmul(timeline),
        *lanes,
        *small,
        *tables(timeline),
        *fusable(timeline),
        *short_matmuls(timeline),
        *sums_over_partitions(timeline),
        *sums_outside(timeline),
        *short_runs(timeline),
        *loaded_again(timeline),
        *converting(timeline),
        *[f for f in few_queues(timeline) if f.gain_us > most],  # else it is the same advice
        *exposed(timeline, any(f.gain_us >= least for f in small)),
        *few_loads(timeline),
        *spills(timeline),
        *psum_spills(timeline),
    ]
    gains = sorted([g for g in gains if g.gain_us >= least], key=lambda g: (-g.gain_us, g.text))
    return found + _of_one_mind(gains)


def _of_one_mind(gains: list[Finding]) -> list[Finding]:
    """The findings without contradictions: where the one of most gain advises larger tiles, none
    that advises smaller ones, and the other way round.

    Args:
        gains: the largest first.
    """
    towards = next((g.tiles for g in gains if g.tiles), 0)
    return [g for g in gains if g.tiles in (0, towards)]


def _bottleneck(t: Times) -> Finding:
    bound = t.bound
    if t.overhead_us > t.body_us:
        return Finding(
            f"launch overhead, {t.overhead_us:.1f} of {t.latency_us:.1f} µs, is more than the "
            "kernel's own time: give each launch more work",
            0.0,
            None,
        )
    lines = [r for r in t.lines if r.resource == bound.name]
    text = f"{_named(bound)} busy {bound.utilisation:.0%} of the body"
    waited_us, results, location = _waiting(t) if bound.utilisation < _NEAR else (0.0, "", None)
    if bound.utilisation < _FAR:
        text += ": no resource is near its limit, and the engines' waits determine the time"
        text += f"; {waited_us:.1f} µs of these waits are {results}" if results else ""
        return Finding(text, 0.0, location or (lines[0].location if lines else None))
    if lines:
        share = lines[0].busy_us / bound.busy_us
        part = "most" if share > 0.505 else f"the largest part, {share:.0%},"
        count = lines[0].count
        text += f"; {part} of it in {lines[0].label}, {f'{count} times' if count > 1 else 'once'}"
    text += f"; {waited_us:.1f} µs of the body are waits {results}" if results else ""
    return Finding(text, 0.0, lines[0].location if lines else None)


def _waiting(t: Times) -> tuple[float, str, Location | None]:
    """The longest stall on the critical path for the results of one kernel line, in microseconds;
    these results, in words; and the line. No words for a stall that is a small part of the body."""
    tasks, s = t._core.work.tasks, t._core.schedule
    waits: dict[tuple[Location | None, str], list[float]] = defaultdict(list)
    for before, at in pairwise(t.chain):
        if s.why[at] == "data":
            line = tasks[before].instr.location, tasks[before].label
            waits[line].append(s.start[at] - s.end[before])
    (location, label), found = max(
        waits.items(), key=lambda entry: sum(entry[1]), default=((None, ""), [])
    )
    if sum(found) < _GOOD_PART * s.span:
        return 0.0, "", None
    times = f", {len(found)} times one after the other" if len(found) > 1 else ""
    text = f"for the results of {label}{times}"
    return sum(found) / 1e3, text, location


def _overcommitted(t: Times) -> Iterator[Finding]:
    """Memory that is needed at once and that is not there."""
    for space in (Space.SBUF, Space.PSUM):
        if MORE_THAN_THERE_IS.format(space.label) in t.choices:
            yield Finding(
                f"more {space.label} is needed at once than there is: the model goes on as if it "
                "were there, so that its time is too low; use smaller tiles",
                0.0,
                None,
            )


def _named(use: Use) -> str:
    return use.name if "DMA" in use.name else f"{use.name} Engine"

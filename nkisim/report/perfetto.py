"""Timelines as Chrome trace events, which ui.perfetto.dev opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nkisim.report.files import write_whole
from nkisim.report.report import short

if TYPE_CHECKING:
    from nkisim.report.times import Interval, Times

_PARTS = 2**20  # of a microsecond


def write(timeline: Times, path: str | Path) -> None:
    """Write the trace of `timeline` to `path`."""
    write_whole(path, json.dumps(document(timeline)))


def document(timeline: Times) -> dict[str, Any]:
    """The trace of `timeline`. Timestamps and durations are microseconds.

    Transfers that overlap on a track, as those on all queues do when the queues are not level, go
    on several threads: "DMA", "DMA (2)", ...
    """
    title = f"{timeline.kernel} on {timeline.machine.name}, {timeline.kind}"
    events: list[dict] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}},
    ]
    spans: list[dict] = []
    for tid, (name, intervals) in enumerate(_threads(timeline).items()):
        about = {"thread_name": {"name": name}, "thread_sort_index": {"sort_index": tid}}
        events += [
            {"ph": "M", "pid": 0, "tid": tid, "name": what, "args": args}
            for what, args in about.items()
        ]
        spans += [_span(tid, i) for i in intervals]
    spans.sort(key=lambda event: event["ts"])
    return {
        "traceEvents": events + spans,
        "displayTimeUnit": "ns",
        "otherData": {"note": title},
    }


def _threads(timeline: Times) -> dict[str, list[Interval]]:
    """What happens on each thread, in order of start: engines, then the DMA queues that are used.

    Complete events of one thread must not overlap partly: those that overlap are dealt out.
    """
    from nkisim.report.times import ENGINE_NAMES

    tracks: dict[str, list[list[Interval]]] = {name: [[]] for name in ENGINE_NAMES}
    tracks["DMA"] = []
    tracks |= {f"DMA {q}": [] for q in range(timeline.timing.dma.engines)}
    for i in timeline.intervals:
        lanes = tracks[i.track]
        for lane in lanes:
            if not lane or lane[-1].end_us <= i.start_us:
                lane.append(i)
                break
        else:
            lanes.append([i])
    return {
        name if number == 1 else f"{name} ({number})": lane
        for name, lanes in tracks.items()
        for number, lane in enumerate(lanes, start=1)
    }


def _span(tid: int, i: Interval) -> dict:
    """An interval as a complete event."""
    start, end = _exact(i.start_us), _exact(i.end_us)
    return {
        "ph": "X",
        "pid": 0,
        "tid": tid,
        "name": i.label,
        "ts": start,
        "dur": end - start,
        "args": {
            "line": short(i.location),
            "source": i.location.text if i.location else "",
            "instructions": i.instructions,
        },
    }


def _exact(us: float) -> float:
    """A time such that a start and a duration add up to the end, also when each is cut to whole
    nanoseconds: rounded, their sum may be after the next start."""
    return round(us * _PARTS) / _PARTS

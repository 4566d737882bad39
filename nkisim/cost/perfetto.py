"""Timelines as Chrome trace events, which ui.perfetto.dev opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkisim.cost.timeline import Timeline


def write(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to `path`. Timestamps and durations are microseconds."""
    from nkisim.cost.timeline import ENGINE_NAMES, short

    queues = ["DMA", *(f"DMA {q}" for q in range(timeline.timing.dma.engines))]
    used = {i.track for i in timeline.intervals}
    tracks = [*ENGINE_NAMES, *(q for q in queues if q in used)]
    number = {name: at for at, name in enumerate(tracks)}
    title = f"{timeline.kernel} on {timeline.machine.name}, {timeline.kind}"
    events: list[dict] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}},
    ]
    for name, at in number.items():
        events.append(
            {"ph": "M", "pid": 0, "tid": at, "name": "thread_name", "args": {"name": name}}
        )
        events.append(
            {
                "ph": "M",
                "pid": 0,
                "tid": at,
                "name": "thread_sort_index",
                "args": {"sort_index": at},
            }
        )
    for i in timeline.intervals:
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": number[i.track],
                "name": i.label,
                "ts": i.start_us,
                "dur": i.end_us - i.start_us,
                "args": {
                    "line": short(i.location),
                    "source": i.location.text if i.location else "",
                    "instructions": i.instructions,
                },
            }
        )
    document = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"note": title}}
    Path(path).write_text(json.dumps(document), encoding="utf-8")

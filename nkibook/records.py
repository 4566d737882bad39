"""A time, and where it comes from: measured, modelled, published, or computed from rates.

A number without its circumstances misleads, so a :class:`Record` carries its kind, the machine, the
versions and the date. Records are written to JSON, and read back.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline


class Kind(StrEnum):
    """Where a time comes from. The value is the label that plots and tables print."""

    HOST = "measured: wall clock on CPU host"
    DEVICE = "measured: wall clock, on a Neuron device"
    CORE = "measured: device time of a NeuronCore"
    MODELLED = "modelled by nkisim"
    PUBLISHED = "published"
    BOUND = "from published rates"


@dataclass(frozen=True)
class Record:
    """The times of one thing, and where they come from.

    Printing a record shows its numbers. Its ``repr`` leaves them out, so that a notebook which
    displays a record stores the same text in every run.

    Attributes:
        label: what was timed.
        kind: where the numbers come from.
        samples: the times, in seconds; one entry where nothing was measured.
        how: how the samples were taken or modelled, or the source of a published number.
        note: what is particular to this record, as a clause without a full stop.
        backend: what ran NKI kernels in this process.
        machine: processor and operating system; empty where nothing was measured.
        versions: version of each relevant package.
        date: ISO date of the measurement.
    """

    label: str
    kind: Kind
    samples: tuple[float, ...]
    how: str
    note: str = ""
    backend: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError(f"record {self.label!r} has no samples: it needs at least one.")
        if not self.how:
            raise ValueError(
                f"record {self.label!r} does not say how it was measured or where it was "
                "published: pass how='...'."
            )
        object.__setattr__(self, "samples", tuple(self.samples))

    @property
    def median(self) -> float:
        """Median of the samples, in seconds."""
        return float(np.median(self.samples))

    @property
    def p20(self) -> float:
        """20th percentile of the samples, in seconds."""
        return float(np.percentile(self.samples, 20))

    @property
    def p80(self) -> float:
        """80th percentile of the samples, in seconds."""
        return float(np.percentile(self.samples, 80))

    @property
    def origin(self) -> str:
        """The kind; for a published number, with its source."""
        return f"{self.kind} ({self.how})" if self.kind is Kind.PUBLISHED else str(self.kind)

    @property
    def caption(self) -> str:
        """One or two sentences: kind, method, machine, versions and date; then the note."""
        return f"{self.circumstances} {self.note}." if self.note else self.circumstances

    @property
    def circumstances(self) -> str:
        """The caption without the note, which is the same for records of one kind."""
        if self.kind is Kind.PUBLISHED:
            return f"{self.label}: {self.origin}."
        if self.kind is Kind.MODELLED:
            return f"{self.kind.capitalize()}: {self.how}."
        if self.kind is Kind.BOUND:
            return f"{self.label}: {self.how}, {self.kind}."
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        parts = [str(self.kind), self.how, self.machine, versions, self.date, self.backend]
        text = "; ".join(part for part in parts if part)
        return f"{text[0].upper()}{text[1:]}."

    def as_dict(self) -> dict[str, Any]:
        """Return every field and the three statistics as JSON-ready values."""
        statistics = {"median": self.median, "p20": self.p20, "p80": self.p80}
        return asdict(self) | {"kind": self.kind.name.lower()} | statistics

    def __repr__(self) -> str:
        return f"Record({self.label!r}, {self.origin})"

    def __str__(self) -> str:
        spread = ""
        if len(self.samples) > 1:
            spread = f" [{format_seconds(self.p20)} to {format_seconds(self.p80)}]"
        return f"{self.label}: {format_seconds(self.median)}{spread} ({self.origin})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}<br><small>{html.escape(self.caption)}</small></p>"


def published(label: str, seconds: float, *, source: str) -> Record:
    """Return a record of a time that somebody published.

    Args:
        label: what was timed.
        seconds: the time, in seconds.
        source: who published it and where, for the legend.
    """
    return Record(label=label, kind=Kind.PUBLISHED, samples=(seconds,), how=source)


def modelled(label: str, *timelines: Timeline) -> Record:
    """Return a record of the latency that nkisim's cost model gives a launch.

    Args:
        label: what was modelled.
        *timelines: what `nkisim.profile` returned. Several are taken for parts of one program that
            run one after another, each reading and writing HBM: their bodies add up, and the
            overhead of a launch counts once.

    Raises:
        ValueError: when there is no timeline.
    """
    if not timelines:
        raise ValueError(f"record {label!r} has no timeline: pass what nkisim.profile returned.")
    body = sum(timeline.body_us for timeline in timelines)
    overhead = max(timeline.overhead_us for timeline in timelines)
    note = f"“{label}”: {len(timelines)} kernels one after another" if timelines[1:] else ""
    how = f"cost model of {timelines[0].machine.name}, launch included"
    latency = (body + overhead) / 1e6
    return Record(label=label, kind=Kind.MODELLED, samples=(latency,), how=how, note=note)


def dma_bound(
    loaded: int, stored: int, label: str = "DMA bound and launch", *, launch: bool = True
) -> Record:
    """Return the least time in which one NeuronCore can move bytes between HBM and SBUF.

    The rates, and what a launch adds, are those of the cost model for :func:`nkibook.chip.chip`:
    the one that kernels are modelled for. On v2 sixteen DMA
    engines load 17 bytes a nanosecond each (DMA bandwidth guide of the AWS Neuron SDK
    documentation) and store 17.9 (traces of trn1 that students of Stanford's CS149 published).

    Args:
        loaded: bytes read from HBM.
        stored: bytes written to HBM.
        label: name of the line in a plot.
        launch: whether the launch is in it, as it is in latencies.
    """
    from nkibook.chip import chip

    here = chip()
    of_launch = f"{here.launch * 1e6:.1f} µs of launch"
    how = (
        f"{loaded / 1e6:.3g} MB in at {here.load_rate / 1e9:.0f} GB/s, "
        f"{stored / 1e6:.3g} MB out at {here.store_rate / 1e9:.0f}, "
        + (f"and {of_launch}" if launch else "without launch")
    )
    if launch and not loaded + stored:
        how = of_launch
    moved = loaded / here.load_rate + stored / here.store_rate
    return bound(label, moved + here.launch * launch, how=how)


def bound(label: str, seconds: float, *, how: str) -> Record:
    """Return the least time that some work takes at a published rate.

    Args:
        label: name of the line in a plot.
        seconds: the time, in seconds.
        how: the amount of work and the rate.
    """
    return Record(label=label, kind=Kind.BOUND, samples=(seconds,), how=how)


def write_json(records: Iterable[Record], path: str | Path) -> None:
    """Write records with all their samples as a JSON list. An error leaves what was there."""
    from nkisim.report.files import write_whole

    write_whole(path, json.dumps([r.as_dict() for r in records], indent=1) + "\n")


def read_json(path: str | Path) -> list[Record]:
    """Read records that `write_json` wrote, on this machine or another."""
    return from_json(Path(path).read_text())


def from_json(text: str) -> list[Record]:
    """Records from the text of a file that `write_json` wrote."""
    names = [field.name for field in fields(Record)]
    return [
        Record(**{n: row[n] for n in names} | {"kind": Kind[row["kind"].upper()]})
        for row in json.loads(text)
    ]


def format_seconds(seconds: float) -> str:
    """Return a time with three significant digits and the unit that suits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * scale:  # which rounds to it
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"

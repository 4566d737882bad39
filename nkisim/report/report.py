"""The report: a timeline as text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nkisim.errors import Location

if TYPE_CHECKING:
    from nkisim.report.times import Times

_HEADING = 20  # characters of the heading of a column
_GUESSES = {
    "core_barrier": "it takes a semaphore between engines here",
    "sendrecv": "it takes a transfer within SBUF here",
    "collectives": "data of other ranks takes a copy from HBM here, and no time for the exchange",
}
# AWS publishes it for NeuronCore-v4: 128 elements a cycle (architecture guide of trn3).
_GPSIMD_RATE = ", at an assumed rate: one element a lane and cycle"
_UNEVEN = 1.5  # times the body of the quickest core: from there on the slowest is worth a line


def table(t: Times, rows: int) -> str:
    """See `Timeline.table`."""
    shown = t.lines[:rows]
    place = max(map(len, ("line", *(short(r.location) for r in shown))))
    what = max(map(len, ("instruction", *(r.label for r in shown))))
    out = [
        ", ".join([f"{t.kernel}: time of each line", *core_shown(t), t.kind]),
        f"{'line':{place}} {'resource':10} {'instruction':{what}} {'count':>7} "
        f"{'busy µs':>9} {'of body':>8}",
    ]
    for r in shown:
        share = r.busy_us / max(t.body_us, 1e-9)
        out.append(
            f"{short(r.location):{place}} {r.resource:10} {r.label:{what}} {r.count:7} "
            f"{r.busy_us:9.2f} {share:8.1%}"
        )
    return "\n".join(out)


def summary(t: Times, findings: Sequence[object]) -> str:
    """See `Timeline.summary`."""
    roof, floor = t.roofline
    out = [
        f"{t.kernel} on {t.machine.name}: {t.latency_us:.1f} µs ({t.kind})",
        *([f"  for {t.machine.name} by {t.target}"] if t.target else []),
        f"  launch overhead {t.overhead_us:.1f} µs, body {t.body_us:.1f} µs, "
        f"{counted(t.instructions, 'instruction')}",
        *(f"  {said}" for said in _said_of_cores(t)),
        f"  HBM {t.hbm_bytes / 1e6:.3f} MB at {t.bandwidth_gb_per_s:.1f} GB/s "
        f"(peak {t.peak_bandwidth_gb_per_s:.0f})",
        f"  roofline {floor:.1f} µs ({roof}), reached {t.roofline_fraction:.0%}; "
        f"busiest: {t.bound.name}, {t.bound.busy_us:.1f} µs"
        + _GPSIMD_RATE
        * (t.bound.name == "GpSimd" and t.machine.version < 4),
        f"  inputs and outputs, each moved once: {t.once_us:.1f} µs, "
        f"{t.once_us / t.latency_us:.0%} of the latency",
    ]
    for use in t.engines.values():
        if use.instructions:
            out.append(
                f"    {use.name:10} busy {use.busy_us:10.2f} µs  {use.utilisation:6.1%}  "
                f"{counted(use.instructions, 'instruction')}"
            )
    for f in findings:
        out.append(f"  - {f}")
    return "\n".join(out)


def core_shown(t: Times) -> list[str]:
    """A phrase that names the core of the details, for a launch on several cores; else nothing."""
    if len(t.cores) == 1:
        return []
    slower = ", the slower" * (t._core is t.slowest)
    return [f"on core {t.cores.index(t._core)}{slower} of {len(t.cores)}"]


def _said_of_cores(t: Times) -> list[str]:
    """Lines that say which cores the figures of a launch on several cores belong to."""
    cores = t.cores
    guessed = [f"no latency of {call} is published: {_GUESSES[call]}" for call in t.guessed]
    if len(cores) == 1:
        return guessed
    spans = [core.schedule.span for core in cores]
    said = [
        f"{len(cores)} cores share the {t.instructions} instructions; bytes, engines and "
        f"findings are of {'the slower, ' * (t._core is t.slowest)}core {cores.index(t._core)}"
    ]
    if max(spans) > _UNEVEN * min(spans):
        each = ", ".join(f"core {at} {span / 1e3:.1f} µs" for at, span in enumerate(spans))
        said.append(f"time of the body: {each}; the launch takes as long as the slower")
    dma = t.timing.dma
    if t.hbm_bytes:
        said.append(
            f"each core has {dma.engines} DMA engines of its own; HBM moves "
            f"{dma.hbm_rate:.0f} GB/s for both, as AWS publishes it"
        )
    return said + guessed


def compare(t: Times, other: Times) -> str:
    """See `Timeline.compare`."""
    rows = [
        ("latency µs", t.latency_us, other.latency_us),
        ("body µs", t.body_us, other.body_us),
        ("HBM MB", t.hbm_bytes / 1e6, other.hbm_bytes / 1e6),
        ("bandwidth GB/s", t.bandwidth_gb_per_s, other.bandwidth_gb_per_s),
        ("roofline µs", t.roofline[1], other.roofline[1]),
    ]
    for name, use in t.engines.items():
        if use.instructions or other.engines[name].instructions:
            rows.append((f"{name} busy µs", use.busy_us, other.engines[name].busy_us))
    names = _headings(t.kernel, other.kernel)
    wide = max(10, *map(len, names))
    first = max(len(name) for name, *_ in rows)
    head = " ".join(f"{name:>{wide}}" for name in names)
    chips = " ".join(f"{x.machine.name.rpartition('-')[2]:>{wide}}" for x in (t, other))
    out = [t.kind, f"{'':{first}} {head} {'ratio':>6}", f"{'NeuronCore':{first}} {chips} {'-':>6}"]
    for name, a, b in rows:
        ratio = f"{a / b:6.2f}" if b else f"{'-':>6}"
        out.append(f"{name:{first}} {a:{wide}.2f} {b:{wide}.2f} {ratio}")
    return "\n".join(out)


def as_html(t: Times, findings: Sequence[object]) -> str:
    """The figures and the findings for a notebook."""
    rows = "".join(
        f"<tr><td>{html.escape(u.name)}</td><td>{u.busy_us:.2f}</td>"
        f"<td>{u.utilisation:.1%}</td><td>{u.instructions}</td></tr>"
        for u in t.engines.values()
        if u.instructions
    )
    notes = "".join(f"<li>{html.escape(str(f))}</li>" for f in findings)
    cores = "".join(f" {html.escape(said[0].upper() + said[1:])}." for said in _said_of_cores(t))
    roof, floor = t.roofline
    return (
        f"<div><p><b>{html.escape(t.kernel)}</b>: {t.latency_us:.1f} µs "
        f"on {t.machine.name} ({t.kind}). Body {t.body_us:.1f} µs, launch overhead "
        f"{t.overhead_us:.1f} µs. Roofline {floor:.1f} µs ({roof}).{cores}</p>"
        "<table><thead><tr><th>resource</th><th>busy, µs</th><th>of the body</th>"
        f"<th>instructions</th></tr></thead><tbody>{rows}</tbody></table>"
        f"<ul>{notes}</ul></div>"
    )


def short(location: Location | None) -> str:
    """See `Location.short`; a dash for an instruction of no line."""
    return "-" if location is None else location.short


def counted(n: int, what: str) -> str:
    """A number of things: "1 transfer" or "2 transfers"."""
    return f"{n} {what}{'s' * (n != 1)}"


def shortened(name: str, most: int) -> str:
    """A name in at most so many characters: both ends of a longer one."""
    if len(name) <= most:
        return name
    first = most // 2
    return f"{name[:first]}…{name[len(name) - (most - 1 - first) :]}"


def _headings(*names: str) -> list[str]:
    """Kernels' names as headings of columns, no two alike."""
    found = [shortened(name, _HEADING) for name in names]
    if len(set(found)) == len(found):
        return found
    return [f"{shortened(n, _HEADING - 4)} ({at})" for at, n in enumerate(names, start=1)]

"""Wall-clock timing of a call, in a record that says where and how it was measured.

A number without its circumstances misleads, so nothing here returns a bare float: a
:class:`Record` carries its kind (measured on this host, measured on a device, modelled,
published, bound), the machine, the versions and the date. On a machine without a Neuron device
every measurement is of the host, also when the call runs an NKI kernel: then the time is that of
the simulator, and the record says so.

``python -m nkibook.bench`` compares the simulated tensor add with NumPy's ``a + b``.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import functools
import gc
import html
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import kernels
from nkibook.options import output_file, positive

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline

LOAD_BYTES_PER_S, STORE_BYTES_PER_S = 16 * 17e9, 16 * 17.9e9
LAUNCH_S = 15.6e-6
"""What the DMA engines of one NeuronCore-v2 move: see :func:`dma_bound`."""

_BACKENDS = {
    "nkisim": "NKI kernels run on nkisim here: the simulator's time, not a NeuronCore's",
    "neuronxcc": "NKI kernels run on the Neuron SDK here",
}


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
        unit: unit of ``samples``, always ``"s"``.
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
    unit: str = "s"
    backend: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError(f"record {self.label!r} has no samples: it needs at least one.")
        if self.unit != "s":
            raise ValueError(f"unit is {self.unit!r}: samples are in seconds, 's'.")
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


def benchmark(
    f: Callable[..., Any],
    *args: Any,
    label: str | None = None,
    warmup: int = 3,
    iters: int = 20,
) -> Record:
    """Time ``f(*args)`` by the wall clock, until its result is ready.

    Warm-up calls come first and are not counted: they trace a kernel, fill caches and compile.
    Each timed call ends when its result exists, also on frameworks that return before the work
    is done: JAX arrays, torch_xla tensors and CUDA tensors are waited for.

    Args:
        f: what to time.
        *args: passed to ``f``.
        label: name of the record; ``f.__name__`` by default.
        warmup: calls before the first timed one, 1 or more. The first call of a kernel traces it.
        iters: timed calls, 1 or more.

    Raises:
        ValueError: when warmup or iters is below 1.
    """
    label = str(label or getattr(f, "__name__", type(f).__name__))
    return interleave({label: functools.partial(f, *args)}, warmup=warmup, iters=iters)[label]


def interleave(
    calls: Mapping[str, Callable[[], Any]], *, warmup: int = 3, iters: int = 20
) -> dict[str, Record]:
    """Time several calls in turns, so that a disturbance of the machine meets all of them.

    One round calls each of them once. The order moves on by one from round to round, so none
    always runs after the same other.

    Args:
        calls: what to time, by its label; called without arguments.
        warmup: rounds before the first timed one, 1 or more.
        iters: timed rounds, 1 or more.

    Returns:
        A record for each label, with ``iters`` samples, in the order of ``calls``.

    Raises:
        ValueError: when calls is empty, or warmup or iters is below 1.
    """
    for name, value in (("warmup", warmup), ("iters", iters)):
        if value < 1:
            raise ValueError(f"{name} is {value}: it must be 1 or more.")
    if not calls:
        raise ValueError("calls is empty: interleave needs at least one thing to time.")
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    kinds: dict[str, Kind] = {}
    for _ in range(warmup):
        for name in names:
            result = calls[name]()
            wait(result)
            kinds[name] = Kind.DEVICE if _on_neuron(result) else Kind.HOST
            del result
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(iters):
            for shift in range(len(names)):
                name = names[(turn + shift) % len(names)]
                start = time.perf_counter()
                result = calls[name]()
                wait(result)
                samples[name].append(time.perf_counter() - start)
                # Freeing the result is not part of the call.
                del result
    finally:
        if collecting:
            gc.enable()
    turns = f", in turns with {len(names) - 1} other" if len(names) > 1 else ""
    how = f"median of {iters} calls after {warmup} for warm-up{turns}, 20th to 80th percentile"
    backend, where, versions = describe_backend(), describe_machine(), describe_versions()
    today = datetime.date.today().isoformat()
    return {
        name: Record(
            label=name,
            kind=kinds[name],
            samples=tuple(samples[name]),
            how=how + (", dispatch included" if kinds[name] is Kind.DEVICE else ""),
            backend=backend,
            machine=where,
            versions=versions,
            date=today,
        )
        for name in names
    }


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
    note = f"{label}: {len(timelines)} kernels one after another" if timelines[1:] else ""
    how = f"cost model of {timelines[0].machine.name}, launch included"
    latency = (body + overhead) / 1e6
    return Record(label=label, kind=Kind.MODELLED, samples=(latency,), how=how, note=note)


def dma_bound(
    loaded: int, stored: int, label: str = "DMA bound and launch", *, launch: bool = True
) -> Record:
    """Return the least time in which one NeuronCore-v2 can move bytes between HBM and SBUF.

    Sixteen DMA engines load 17 bytes a nanosecond each (DMA bandwidth guide of the AWS Neuron SDK
    documentation) and store 17.9 (traces of trn1 that students of Stanford's CS149 published).
    What a launch adds comes from these traces as well: 15.6 us before the first instruction and
    after the last result. All of them are the cost model's.

    Args:
        loaded: bytes read from HBM.
        stored: bytes written to HBM.
        label: name of the line in a plot.
        launch: whether the launch is in it, as it is in latencies.
    """
    how = (
        f"{loaded / 1e6:.3g} MB in at {LOAD_BYTES_PER_S / 1e9:.0f} GB/s, "
        f"{stored / 1e6:.3g} MB out at {STORE_BYTES_PER_S / 1e9:.0f}, "
        + (f"and {LAUNCH_S * 1e6:.1f} µs of launch" if launch else "without launch")
    )
    moved = loaded / LOAD_BYTES_PER_S + stored / STORE_BYTES_PER_S
    return bound(label, moved + LAUNCH_S * launch, how=how)


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


def write_csv(records: Iterable[Record], path: str | Path) -> None:
    """Write one line a record: label, kind, statistics in seconds, and circumstances. An error
    leaves what was there."""
    from nkisim.report.files import write_whole

    columns = ["label", "kind", "unit", "median", "p20", "p80"]
    columns += ["how", "backend", "machine", "versions", "date"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    for record in records:
        versions = " ".join(f"{name}={value}" for name, value in record.versions.items())
        writer.writerow(record.as_dict() | {"versions": versions})
    write_whole(path, text.getvalue())


def format_seconds(seconds: float) -> str:
    """Return a time with three significant digits and the unit that suits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * scale:  # which rounds to it
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def describe_machine() -> str:
    """Return the processor, its core count and the operating system of this host."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    instance = _ec2_instance_type()
    where = f"{instance}, " if instance else ""
    return f"{where}{processor}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"


def describe_versions() -> dict[str, str]:
    """Return the version of Python, of the NKI backend, and of each framework in use."""
    versions = {"Python": platform.python_version(), kernels.backend: kernels.backend_version}
    for name in ("numpy", "torch", "torch_xla", "jax"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def describe_backend() -> str:
    """Return a sentence on what runs NKI kernels in this process."""
    return _BACKENDS[kernels.backend]


def _ec2_instance_type() -> str:
    """Return the instance type, such as inf2.xlarge, on a Nitro-based EC2 instance, or ""."""
    folder = Path("/sys/devices/virtual/dmi/id")
    try:
        if (folder / "sys_vendor").read_text().strip() != "Amazon EC2":
            return ""
        return (folder / "product_name").read_text().strip()
    except OSError:
        return ""


def _leaves(result: Any) -> Iterable[Any]:
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


def wait(result: Any) -> None:
    """Return when the arrays in a result exist, on frameworks that compute in the background.

    Args:
        result: an array of any framework, or a list, tuple or mapping of them, nested at will.
    """
    device_types = set()
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):  # a JAX array
            leaf.block_until_ready()
        elif _is_torch_tensor(leaf):
            device_types.add(leaf.device.type)
    if "xla" in device_types:
        import torch_xla
        import torch_xla.core.xla_model as xm

        torch_xla.sync(wait=True)
        xm.wait_device_ops()
    if "cuda" in device_types:
        sys.modules["torch"].cuda.synchronize()


def _on_neuron(result: Any) -> bool:
    """Say whether an array in a result lives on a Neuron device."""
    for leaf in _leaves(result):
        if _is_torch_tensor(leaf):
            if leaf.device.type == "xla":
                import torch_xla.runtime as runtime

                return runtime.device_type() == "NEURON"
        elif hasattr(leaf, "block_until_ready"):
            return any(device.platform == "neuron" for device in leaf.devices())
    return False


def _is_torch_tensor(value: Any) -> bool:
    # A tensor can only exist once torch is imported, so torch need not be imported to ask.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare simulated kernels, forward and after their first call, with plain NumPy."""
    parser = argparse.ArgumentParser(prog="python -m nkibook.bench", description=main.__doc__)
    parser.add_argument(
        "--iters", type=positive, default=30, help="timed rounds (default %(default)s)"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="also write every sample as JSON"
    )
    parser.add_argument(
        "--csv", metavar="FILE", type=output_file, help="also write one line a record as CSV"
    )
    options = parser.parse_args(argv)

    from nkibook.bench_cases import cases

    records: list[Record] = []
    for case in cases():
        plain, kernel = (f"{name}, {case.what}" for name in case.names)
        calls = {plain: case.plain, kernel: case.kernel}
        expected, actual = (next(iter(_leaves(call()))) for call in calls.values())
        if not np.allclose(actual, expected, rtol=case.rtol, atol=case.atol):
            raise RuntimeError(f"{kernel} differs from {plain}.")
        pair = interleave(calls, iters=options.iters)
        ratio = pair[kernel].median / pair[plain].median
        print(f"{pair[plain]}\n{pair[kernel]}")
        print(f"ratio of the medians: {ratio:.2f} ({_verdict(ratio, case.target)})\n")
        records.extend(pair.values())
    print(records[0].caption)
    if options.json:
        write_json(records, options.json)
    if options.csv:
        write_csv(records, options.csv)
    return 0


def _verdict(ratio: float, target: float | None) -> str:
    if target is None:
        return "for comparison, no target"
    return f"target: at most {target:g}, {'met' if ratio <= target else 'missed'}"


if __name__ == "__main__":
    sys.exit(main())

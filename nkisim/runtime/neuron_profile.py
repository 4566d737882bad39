"""Stand-ins for `neuron-profile` and `neuron-explorer`, on the path under `python -m nkisim`.

Programs written for a device save a NEFF, capture a profile of it and read its summary as JSON.
Here `nki.benchmark` and `nki.baremetal` write the modelled timeline under the name of the NEFF,
and these commands show it, with the fields of AWS's profile schema that the model knows. The others
are absent. Every file and every answer says that it is modelled. A file is a Chrome trace, too,
which ui.perfetto.dev opens in the place of the tools' own viewer.

Sources: the commands and the forms of their output are those of AWS's Neuron Profiler user guide
(SDK 2.28); the fields are those of the table Summary in its profile schema reference (SDK 2.31).
Percentages are fractions, as the tools print them.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nkisim.report import perfetto
from nkisim.report.files import write_whole
from nkisim.report.timeline import Timeline
from nkisim.report.times import MODELLED

FORM = "nkisim.neff/1"
COMMANDS = ("neuron-profile", "neuron-explorer")
_FOLDER = "NKISIM_NEURON_PROFILE"  # the variable that names the folder of the stand-ins


def stand_in() -> None:
    """Put the commands on the path of this process and its children, unless AWS's are there."""
    if any(shutil.which(name) for name in COMMANDS):
        return
    folder = Path(tempfile.mkdtemp(prefix="nkisim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in COMMANDS:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nkisim {name} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    os.environ[_FOLDER] = str(folder)


def stands_in() -> bool:
    """Whether the commands on the path are these."""
    return _FOLDER in os.environ


def save(name: str | os.PathLike, timeline: Timeline) -> None:
    """Write a timeline under the name of a NEFF or an NTFF, where the commands stand in."""
    if stands_in():
        written = perfetto.document(timeline) | {
            "form": FORM,
            "kind": MODELLED,
            "kernel": timeline.kernel,
            "summary": summary(timeline),
            "instruction": list(events(timeline)),
        }
        write_whole(os.fspath(name), json.dumps(written))


def summary(t: Timeline) -> dict[str, Any]:
    """The fields of AWS's Summary that the model knows: times in seconds, percentages as fractions
    of `total_time`, bytes. `total_time` is the modelled latency of a launch."""
    total = t.latency_us / 1e6
    found: dict[str, Any] = {
        "kind": MODELLED,
        "total_time": total,
        "total_exec_time": t.body_us / 1e6,
        "hardware_flops": 0,
        "hbm_read_bytes": 0,
        "hbm_write_bytes": 0,
    }
    memory = t.slowest.work.memory
    for group in t.groups:
        count = len(group.positions)
        task = group.task
        if group.engine.value == "Tensor":
            found["hardware_flops"] += task.flops * count
        if task.transfer is not None:
            reads, writes = (
                any(not memory[number].space.on_chip for number, _ in touched)
                for touched in (task.reads, task.writes)
            )
            moved = task.transfer.hbm_bytes * count
            # Between two places in HBM it counts both.
            found["hbm_read_bytes"] += (moved // (1 + writes)) * reads
            found["hbm_write_bytes"] += (moved // (1 + reads)) * writes
    for name, use in t.engines.items():
        if name == "DMA queues":
            continue
        field = f"{name.lower()}_engine"
        found[f"{field}_instruction_time"] = use.busy_us / 1e6
        found[f"{field}_active_time"] = use.busy_us / 1e6
        found[f"{field}_active_time_percent"] = use.busy_us / 1e6 / total
        found[f"{field}_instruction_count"] = use.instructions
    spans = [(i.start_us, i.end_us) for i in t.intervals]
    dma = [(i.start_us, i.end_us) for i in t.intervals if i.track.startswith("DMA")]
    for field, times in (("dma", dma), ("total", spans)):
        active = union(times) / 1e6
        found[f"{field}_active_time"] = active
        found[f"{field}_active_time_percent"] = active / total
    found["dma_transfer_count"] = t.engines["DMA queues"].instructions
    if not t.spilled_bytes:
        found |= {"spill_save_bytes": 0, "spill_reload_bytes": 0}
    return found


def union(spans: Iterable[tuple[float, float]]) -> float:
    """The time that some spans cover together."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def events(t: Timeline) -> Iterable[dict[str, Any]]:
    """What happens when, in the fields of the user guide's example: timestamp and duration in
    nanoseconds, label (the engine or DMA queue) and opcode; and nki_source_location."""
    for interval in t.intervals:
        place = interval.location
        yield {
            "timestamp": round(interval.start_us * 1e3),
            "duration": round((interval.end_us - interval.start_us) * 1e3),
            "label": interval.track,
            "opcode": interval.label,
            "nki_source_location": place and f"{place.filename}:{place.lineno}",
        }


# -- the commands ------------------------------------------------------------------------------


def run(name: str, words: Sequence[str]) -> int:
    """One of the commands. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=f"A stand-in for AWS's {name} on the CPU simulator: times are {MODELLED}.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    capture = commands.add_parser("capture", help="write the profile of a NEFF")
    view = commands.add_parser("view", help="show a profile")
    for command, option in ((capture, "--neff"), (view, "--neff-path")):
        command.add_argument("-n", option, dest="neff", default=None)
        command.add_argument("-s", "--session-file", dest="session", default="profile.ntff")
    view.add_argument("-d", "--session-dir", dest="folder")
    view.add_argument("--output-format", default="db")
    view.add_argument("--output-file")
    # What a device needs and the model does not is taken as it is.
    options, _ = parser.parse_known_args(words)
    try:
        if options.command == "capture":
            profile = _read(options.neff or "file.neff")
            write_whole(options.session, json.dumps(profile))
            print(f"{options.session}: {MODELLED}", file=sys.stderr)
            return 0
        return _view(name, options)
    except (OSError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def _read(path: str) -> dict[str, Any]:
    """A profile that `save` or `capture` has written.

    Raises:
        OSError, ValueError: there is none in the file.
    """
    text = Path(path).read_bytes()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("form") != FORM:
        raise ValueError(
            f"{path} is none of nkisim's profiles: under python -m nkisim, nki.benchmark and "
            "nki.baremetal write them with save_neff_name and save_trace_name"
        )
    return found


def _view(name: str, options: argparse.Namespace) -> int:
    if options.folder is not None:
        found = [_read(str(path)) for path in sorted(Path(options.folder).glob("*.ntff"))]
    else:
        own = Path(options.session)
        found = [_read(options.session if own.is_file() or not options.neff else options.neff)]
    shown = options.output_format
    if shown == "summary-json":
        text = json.dumps({x["kernel"]: x["summary"] for x in found}, indent=2)
    elif shown == "summary-text":
        lines = [f"{k:40} {v}" for x in found for k, v in sorted(x["summary"].items())]
        text = "\n".join(lines)
    elif shown == "json":
        both = {
            "summary": [x["summary"] for x in found],
            "instruction": [i for x in found for i in x["instruction"]],
        }
        text = json.dumps(both)
    else:
        print(
            f"{name}: --output-format {shown} needs AWS's tools; here are summary-json, "
            "summary-text and json, and ui.perfetto.dev opens the profile's file",
            file=sys.stderr,
        )
        return 2
    path = options.output_file or ("profile.json" if shown == "json" else None)
    if path is None:
        print(text)
    else:
        write_whole(path, text)
    return 0

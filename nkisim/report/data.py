"""A timeline, warnings and errors as plain data, for programs: `python -m nkisim profile --json`.

The form is versioned by FORM. A name is never given another meaning under the same number; a new
name may be added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nkisim.errors import KernelError, Location
from nkisim.report.report import short

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline

FORM = "nkisim.profile/1"


def of_timeline(t: Timeline) -> dict[str, Any]:
    """The figures of a timeline.

    Returns:
        A dictionary that json.dump takes. Times are microseconds and modelled, as `kind` says:

        - kernel, machine, target, kind: strings; `target` is what chose the machine, or "";
        - cores: how many NeuronCores the launch uses; bytes, engines and findings are of the
          slowest one;
        - latency_us, overhead_us, body_us: the launch, its fixed part, and the rest;
        - instructions: of all cores; hbm_bytes, spilled_bytes, flops: counts;
        - bound: {resource, busy_us, of_latency}: the busiest resource;
        - roofline: {resource, us, of_latency}: the least time that elements and bytes need;
        - once: {us, of_latency}: the least time to move inputs and outputs, each byte once;
        - engines: by name {busy_us, data_us, utilisation, instructions};
        - findings: [{text, gain_us, line}], the largest gain first;
        - lines: [{line, resource, what, count, busy_us}], the dearest first.

        A `line` is {file, line, function, text, short}, or None; `short` is `file:line`.
    """
    resource, floor = t.roofline
    return {
        "kernel": t.kernel,
        "machine": t.machine.name,
        "target": t.target,
        "kind": t.kind,
        "cores": len(t.cores),
        "latency_us": t.latency_us,
        "overhead_us": t.overhead_us,
        "body_us": t.body_us,
        "instructions": t.instructions,
        "hbm_bytes": t.hbm_bytes,
        "spilled_bytes": t.spilled_bytes,
        "flops": t.flops,
        "bound": {
            "resource": t.bound.name,
            "busy_us": t.bound.busy_us,
            "of_latency": t.bound_fraction,
        },
        "roofline": {"resource": resource, "us": floor, "of_latency": t.roofline_fraction},
        "once": {"us": t.once_us, "of_latency": t.once_us / t.latency_us},
        "engines": {
            name: {
                "busy_us": use.busy_us,
                "data_us": use.data_us,
                "utilisation": use.utilisation,
                "instructions": use.instructions,
            }
            for name, use in t.engines.items()
        },
        "findings": [
            {"text": f.text, "gain_us": f.gain_us, "line": of_location(f.location)}
            for f in t.findings
        ],
        "lines": [
            {
                "line": of_location(row.location),
                "resource": row.resource,
                "what": row.label,
                "count": row.count,
                "busy_us": row.busy_us,
            }
            for row in t.lines
        ],
    }


def of_error(error: BaseException) -> dict[str, Any]:
    """An error.

    Returns:
        {type, message}; of a KernelError also {problem, rule, fix, code, line}.
    """
    said: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, KernelError):
        said |= {
            "problem": error.problem,
            "rule": error.rule,
            "fix": error.fix,
            "code": error.code,
            "line": of_location(error.location),
        }
    return said


def of_location(location: Location | None) -> dict[str, Any] | None:
    """A kernel line as {file, line, function, text, short}; None where there is none."""
    if location is None:
        return None
    return {
        "file": location.filename,
        "line": location.lineno,
        "function": location.function,
        "text": location.text,
        "short": short(location),
    }

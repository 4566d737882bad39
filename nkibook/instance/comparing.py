"""Where a report from an instance differs from what the book assumes, and from the cost model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nkibook.instance.probe import judge
from nkibook.instance.probes import PROBES

# Largest error that the tests for a device let pass, in units of the last place: 1e-3 of the
# largest value in float32, as nkibook.exercises.comparing says, and 2 steps in 16 bits.
ULP = {"float32": 1e-3 * 2**23, "bfloat16": 4.0, "float16": 4.0}


def differences(report: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """(what, what was found, whether that is as assumed) for each answer of a report."""
    for probe in PROBES:
        found = report.get(f"probe: {probe.name}")
        if found is not None:
            outcome = found.get("answer", {}).get("outcome") or f"no answer: {found.get('failed')}"
            good = judge(probe, outcome)
            said = "as assumed" if good else f"assumed: {probe.assumed} {probe.words}".strip()
            yield probe.name, said if good else f"{said}; found: {outcome[:300]}", good
    for step, found in report.items():
        kind, _, name = step.partition(": ")
        if kind == "operators":
            yield from _operators(name, found)
        elif kind in ("tests", "notebook"):
            last = (found.get("answer") or found.get("failed") or "").strip()
            good = found.get("exit_code") == 0
            yield step, "passed" if good else last[-1500:], good
        elif kind != "probe" and "failed" in found:
            yield step, found["failed"], False
    yield from _times(report)


def _operators(framework: str, found: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    if "answer" not in found:
        yield f"operators: {framework}", str(found.get("failed")), False
    for row in found.get("answer", ()):
        what = f"{row['operator']}, {framework}, {row['dtype']}"
        errors = [row[key] for key in ("ulp", "gradient_ulp") if key in row]
        if "error" in row:
            yield what, row["error"][:300], False
        else:
            good = all(e <= ULP[row["dtype"]] for e in errors)
            times = f"first call {row['first_s']:.2f} s, later {row['later_s'] * 1e3:.2f} ms"
            yield what, f"largest error {max(errors):.3g} ulp, {times}", good


def _times(report: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Measured device time beside the model's, or whole calls; none is an assumption."""
    for step, found in report.items():
        for record in found.get("answer", ()) if step.startswith("calls: ") else ():
            middle = sorted(record["samples"])[len(record["samples"]) // 2]
            yield record["label"], f"measured {middle * 1e3:.3g} ms, the whole call", True
    measured = {r["label"]: r for r in report.get("times", {}).get("answer", ())}
    for record in report.get("model", {}).get("answer", ()):
        beside = measured.get(f"{record['label']}: device")
        if beside is not None:
            times = [sorted(r["samples"])[len(r["samples"]) // 2] * 1e6 for r in (beside, record)]
            said = f"measured {times[0]:.1f} µs, modelled {times[1]:.1f} µs"
            yield record["label"], f"{said}, modelled over measured {times[1] / times[0]:.2f}", True

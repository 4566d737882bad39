"""A verdict in the forms that graders read."""

from __future__ import annotations

import datetime
import math
import os
import platform
import statistics
from collections.abc import Mapping
from typing import Any

from nkisim.judging.task import Task
from nkisim.judging.verdict import CORRECT, LaunchVerdict, Verdict

KIND = "modelled by nkisim, not measured"


def gradescope(verdict: Verdict, score: Mapping[str, Any]) -> dict[str, Any]:
    """`results.json` of a Gradescope autograder.

    Args:
        verdict: the verdict.
        score: "points" for a right launch whose case says none, 1 by default; "performance", the
            points for time, 0 by default, which are given only if every launch is right: all of
            them at `full` times the baseline or less, none at `none` times, and in between in
            proportion to the logarithm. Defaults are 1.0 and 2.0.

    Returns:
        {score, output, tests, leaderboard, extra_data}, as Gradescope's specification of
        autograders has them. A hidden case is a test of the
        visibility "after_published", of which the output names no sizes. The leaderboard has the
        modelled time.
    """
    tests: list[dict[str, Any]] = []
    for number, launch in enumerate(verdict.launches, 1):
        points = score.get("points", 1) if launch.points is None else launch.points
        good = launch.status in CORRECT
        tests.append(
            {
                "name": f"hidden case {number}" if launch.hidden else launch.title,
                "score": points if good else 0,
                "max_score": points,
                "status": "passed" if good else "failed",
                "output": launch.status if launch.hidden else _shown(launch),
                "visibility": "after_published" if launch.hidden else "visible",
            }
        )
    most = score.get("performance", 0)
    if most:
        share = performance(verdict, score.get("full", 1.0), score.get("none", 2.0))
        tests.append(
            {
                "name": "time by the model, relative to the baseline",
                "score": round(most * share, 2),
                "max_score": most,
                "status": "passed" if share else "failed",
                "output": f"{share:.0%} of the points for time ({KIND})",
                "visibility": "visible",
            }
        )
    board: list[dict[str, Any]] = []
    if verdict.status in CORRECT and verdict.latency_us is not None:
        board = [{"name": "modelled us", "value": round(verdict.latency_us, 1), "order": "asc"}]
    return {
        "score": round(sum(t["score"] for t in tests), 2),
        "output": f"{verdict.status}; times are {KIND}",
        "tests": tests,
        "leaderboard": board,
        "extra_data": {"status": verdict.status, "exit_code": verdict.exit_code},
    }


def performance(verdict: Verdict, full: float, none: float) -> float:
    """The share of the points for time, 0 to 1, by the geometric mean over the launches of their
    multiple of the baseline's time. 0 unless all are right, and have a baseline."""
    mean = _multiple(verdict.as_data())
    if verdict.status not in CORRECT or math.isinf(mean):
        return 0.0
    return min(1.0, max(0.0, math.log(none / mean) / math.log(none / full)))


def _shown(launch: LaunchVerdict) -> str:
    said = [str(launch)]
    if launch.error is not None:
        said.append(launch.error["message"])
    if launch.printed.strip():
        said += ["printed:", launch.printed]
    return "\n".join(said)


def result(verdict: Verdict, task: Task, name: str) -> dict[str, Any]:
    """`result.json` of schema 1, of the harness of the course kit of arminagha1234's
    trainium-course-cluster (harness/result_writer.py). Of several launches it has the sum of the
    times, and the furthest element. Times are there when the results are right; `timing` says in a
    field more, as the schema allows, that they are modelled."""
    right = verdict.status in CORRECT
    outputs = [o for x in verdict.launches if x.result for o in x.result["outputs"]]
    worst = [o["worst"] for o in outputs if "worst" in o]
    errors = [float(w["error"]) for w in worst]
    relative = [
        float(w["error"]) / abs(float(w["wanted"])) for w in worst if float(w["wanted"]) != 0
    ]
    tolerances = {(o["rtol"], o["atol"]) for o in outputs if "rtol" in o}
    rtol, atol = max(tolerances, default=(task.rtol, task.atol))
    mine = verdict.latency_us if right else None
    base = [launch.baseline_us for launch in verdict.launches]
    theirs = sum(base) if right and None not in base else None  # type: ignore[arg-type]
    times = {
        f"{who}_ms_{what}": us / 1e3
        for who, us in (("student", mine), ("reference", theirs))
        if us is not None
        for what in ("median", "min")
    }
    return {
        "schema_version": 1,
        "job_id": "local",
        "assignment": name,
        "timestamp_utc": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "correctness": {
            "passed": right,
            "tolerance": {"rtol": rtol, "atol": atol},
            "max_abs_diff": _finite(max(errors, default=None)),
            "max_rel_diff": _finite(max(relative, default=None)),
            "shape_match": all("worst" in o for o in outputs) if outputs else False,
            "dtype_match": bool(outputs),
            "notes": "; ".join(x.why for x in verdict.launches if x.why),
        },
        "timing": {"warmup_runs": 0, "measured_runs": 0, "kind": KIND, **times},
        "environment": {
            "hostname": platform.node(),
            "user": os.environ.get("USER", ""),
            "python": platform.python_version(),
            "neuron_visible_cores": "",
            "neuron_ls": "",
        },
    }


def _finite(x: float | None) -> float | None:
    """A number that JSON has."""
    return x if x is not None and math.isfinite(x) else None


def leaderboard(verdicts: Mapping[str, Mapping[str, Any]]) -> str:
    """A table in Markdown: those with most right launches first, the fastest of them at the top.

    Args:
        verdicts: name of a submission to its verdict, as `Verdict.as_data` gives it.
    """

    def key(entry: tuple[str, Mapping[str, Any]]) -> tuple:
        return -_right(entry[1]), _multiple(entry[1]), entry[0]

    rows = ["| submission | right | modelled time, of the baseline's |", "|---|---:|---:|"]
    for name, verdict in sorted(verdicts.items(), key=key):
        right, of = _right(verdict), len(verdict["launches"])
        multiple = _multiple(verdict)
        time = "" if right < of or math.isinf(multiple) else f"{multiple:.2f}"
        rows.append(f"| {name} | {right} of {of} | {time} |")
    return "\n".join(rows)


def _right(verdict: Mapping[str, Any]) -> int:
    return sum(x["status"] in CORRECT for x in verdict["launches"])


def _multiple(verdict: Mapping[str, Any]) -> float:
    """The geometric mean of the multiples of the baseline's time; infinite where one is missing."""
    found = [x["of_baseline"] for x in verdict["launches"]]
    return math.inf if None in found else statistics.geometric_mean(found)

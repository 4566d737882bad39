"""The verdict on a kernel, as an object, as text and as JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

FORM = "nkisim.verdict/1"
"""The form of `Verdict.as_data`. A name is never given another meaning under the same number; a
new name may be added."""

STATUSES = {
    "right": (0, "the results are right, within the time that is allowed"),
    "wrong": (1, "a result differs from the reference"),
    "refused": (3, "a rule is broken: of hardware, compiler, language, or of judging"),
    "limit": (4, "a limit of time, memory, instructions, iterations or embedded data is reached"),
    "slow": (5, "the results are right, and the modelled time is over what is allowed"),
    "error": (6, "the judge itself failed"),
}
"""The status of a launch, and of a verdict: the exit code of `python -m nkisim judge`, and what it
says. 2 is the exit code for wrong arguments."""

CORRECT = ("right", "slow")
"""The statuses of a launch whose results are right."""

_GRAVEST = ("error", "refused", "limit", "wrong", "slow", "right")


@dataclass(frozen=True)
class LaunchVerdict:
    """The verdict on one launch: a case, on a chip, on a number of cores.

    Attributes:
        sizes: of the case.
        hidden: whether the case is one that a student is not shown in detail.
        points: of the case, None where it says none.
        chip, cores: of the launch.
        status: see STATUSES.
        why: what is wrong, in one line; "" where nothing is.
        error: where it is refused or over a limit: {type, message}, and, of a rule of the
            simulator, {problem, rule, fix, code, line}.
        warnings: of the simulator, as texts.
        printed: the first characters that the kernel's process printed.
        seconds: on the clock, of both processes.
        seed: from which inputs were drawn, after the kernel was traced; None where none were.
        result: as `nkisim.judging.comparing.compared` gives it; None where nothing was compared.
        embedded_bytes: of data in the trace; None where there is no trace.
        profile: the modelled times, as `nkisim.report.data.of_timeline` gives them; None where
            there are none.
        baseline_us: the modelled time of the baseline; None where there is none.
    """

    sizes: dict[str, Any]
    hidden: bool
    points: float | None
    chip: str
    cores: int
    status: str
    why: str = ""
    error: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    printed: str = ""
    seconds: float = 0.0
    seed: int | None = None
    result: dict[str, Any] | None = None
    embedded_bytes: int | None = None
    profile: dict[str, Any] | None = None
    baseline_us: float | None = None

    @property
    def latency_us(self) -> float | None:
        """The modelled time in microseconds."""
        return None if self.profile is None else self.profile["latency_us"]

    @property
    def of_baseline(self) -> float | None:
        """The modelled time as a multiple of the baseline's."""
        if self.baseline_us is None or self.latency_us is None:
            return None
        return self.latency_us / self.baseline_us

    @property
    def title(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        cores = f" on {self.cores} cores" if self.cores > 1 else ""
        return ", ".join([*([sizes] if sizes else []), self.chip + cores])

    @property
    def headline(self) -> str:
        """Status and times, in one line."""
        said = [f"{self.title}: {self.status}"]
        if self.profile is not None:
            p = self.profile
            said.append(
                f"{p['latency_us']:.1f} µs (modelled), bound by {p['bound']['resource']}, "
                f"{p['roofline']['of_latency']:.0%} of the roofline"
            )
        if self.of_baseline is not None:
            said.append(f"{self.of_baseline:.2f} times the baseline")
        return "; ".join(said)

    def __str__(self) -> str:
        return f"{self.headline}\n  {self.why}" if self.why else self.headline


@dataclass(frozen=True)
class Verdict:
    """The verdict on a kernel.

    Attributes:
        kernel: "FILE:FUNCTION".
        launches: one for each case, chip and number of cores, in this order.
        smallest: the smallest sizes found at which the first wrong case is still wrong; None where
            none is wrong.
    """

    kernel: str
    launches: list[LaunchVerdict]
    smallest: LaunchVerdict | None = None

    @property
    def status(self) -> str:
        """The gravest status of a launch."""
        found = {launch.status for launch in self.launches}
        return next(s for s in _GRAVEST if s in found)

    @property
    def right(self) -> bool:
        return self.status == "right"

    @property
    def exit_code(self) -> int:
        return STATUSES[self.status][0]

    @property
    def latency_us(self) -> float | None:
        """The modelled time of all launches together; None where one of them has none."""
        times = [launch.latency_us for launch in self.launches]
        return None if None in times else sum(times)  # type: ignore[arg-type]

    def as_data(self) -> dict[str, Any]:
        """A dictionary that json.dump takes: {form, kernel, status, exit_code, launches, smallest},
        a launch with the attributes of `LaunchVerdict`, title, latency_us and of_baseline."""
        return {
            "form": FORM,
            "kernel": self.kernel,
            "status": self.status,
            "exit_code": self.exit_code,
            "launches": [_as_data(x) for x in self.launches],
            "smallest": None if self.smallest is None else _as_data(self.smallest),
        }

    def __str__(self) -> str:
        right = sum(x.status in CORRECT for x in self.launches)
        file, _, name = self.kernel.rpartition(":")
        out = [
            f"{name} of {os.path.basename(file)}: {self.status}, {right} of {len(self.launches)} "
            "launches right"
        ]
        out += [_indented(str(launch)) for launch in self.launches]
        if self.smallest is not None:
            out.append(f"  the smallest sizes found that are wrong: {self.smallest.title}")
        errors = {x.error["message"]: None for x in self.launches if x.error is not None}
        out += [_indented(message) for message in errors]
        # Those of one line and rule differ in their first lines only, which say how many elements.
        warned = {w.partition("\n")[2]: w for x in reversed(self.launches) for w in x.warnings}
        out += [_indented(f"warning: {w}") for w in list(warned.values())[:3]]
        slowest = max(self.launches, key=lambda x: x.latency_us or 0.0)
        if slowest.profile is not None and slowest.profile["findings"]:
            out.append(f"  what would be faster, at {slowest.title}:")
            for finding in slowest.profile["findings"][:3]:
                out.append(f"    - {finding['text']}")
        return "\n".join(out)


def _as_data(launch: LaunchVerdict) -> dict[str, Any]:
    more = {n: getattr(launch, n) for n in ("title", "latency_us", "of_baseline")}
    return {**vars(launch), **more}


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

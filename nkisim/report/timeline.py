"""The result of profiling a kernel: its times, the findings about them, and how they are shown."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nkisim.errors import ParameterError
from nkisim.report import report
from nkisim.report.figure import draw
from nkisim.report.findings import find
from nkisim.report.gains import Finding
from nkisim.report.perfetto import write
from nkisim.report.times import Times

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Timeline(Times):
    """Times of a kernel, modelled, with what they say. The attributes are those of `Times`."""

    @cached_property
    def findings(self) -> list[Finding]:
        """What holds the kernel up and what could be gained, the largest gain first."""
        return find(self)

    def on_core(self, number: int) -> Timeline:
        """This launch, with figures, findings and pictures of one of its cores.

        Args:
            number: of the core, from 0; `cores` has one entry for each.

        Raises:
            ParameterError: the launch has no such core.
        """
        if not isinstance(number, int) or not 0 <= number < len(self.cores):
            raise ParameterError(
                f"on_core({number!r}) of a launch on {len(self.cores)} core(s)",
                rule="cores are numbered from 0",
                fix=f"0 to {len(self.cores) - 1}",
            )
        given = (self.kernel, self.machine, self.timing, self.cores, self.instructions)
        return Timeline(*given, self.target, shown=number, guessed=self.guessed, once=self.once)

    # -- output ---------------------------------------------------------------------------------

    def table(self, rows: int = 12) -> str:
        """The dearest kernel lines as text.

        Args:
            rows: how many to show.

        Raises:
            ParameterError: rows is negative, or no int.
        """
        if not isinstance(rows, int) or rows < 0:
            raise ParameterError(
                f"table(rows={rows!r})",
                rule="rows is how many lines to show, 0 or more",
                fix="leave it out for the dearest ones",
            )
        return report.table(self, rows)

    def summary(self) -> str:
        """The figures and the findings as text."""
        return report.summary(self, self.findings)

    def compare(self, other: Timeline) -> str:
        """Two kernels side by side, as text: this one, the other, and this over the other.

        Long names lose their middle. Names that read the same then are numbered.

        Raises:
            ParameterError: the other is not a Timeline.
        """
        if not isinstance(other, Timeline):
            raise ParameterError(
                f"compare({other!r})",
                rule="a timeline is compared with another one",
                fix="pass what nkisim.profile returned",
            )
        return report.compare(self, other)

    def plot(self, **kwargs: Any) -> Figure:
        """The engine timeline as a matplotlib figure. See `nkisim.report.figure.draw`."""
        return draw(self, **kwargs)

    def to_perfetto(self, path: str | Path) -> None:
        """Write a trace that ui.perfetto.dev opens (Chrome trace events, JSON)."""
        write(self, path)

    def __repr__(self) -> str:
        return (
            f"<Timeline of {self.kernel}: {self.latency_us:.1f} µs on {self.machine.name}, "
            f"{self.kind}>"
        )

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return report.as_html(self, self.findings)

"""What a search found: trials, the best of them, and why it is the best."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from nkisim.errors import ParameterError
from nkisim.machine import GENERATIONS
from nkisim.report.figure import COLORS, figure_class
from nkisim.report.report import counted
from nkisim.report.times import MODELLED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORM = "nkisim.tune/1"

_WIDE = 77  # characters of a line of text
_DMA = "DMA queues"


@dataclass(frozen=True)
class Trial:
    """One combination of parameters.

    Attributes:
        parameters: name to value.
        figures: what is modelled, as `nkisim.report.data.of_timeline` describes it; None if the
            combination was refused.
        refused: the error, as `nkisim.report.data.of_error` describes it; None if it fits.
        warnings: texts of the simulator's warnings.
    """

    parameters: dict[str, Any]
    figures: dict[str, Any] | None
    refused: dict[str, Any] | None
    warnings: tuple[str, ...] = ()

    @property
    def latency_us(self) -> float:
        """The modelled latency in microseconds.

        Raises:
            ParameterError: the combination was refused.
        """
        return self._modelled["latency_us"]

    @property
    def bound(self) -> str:
        """The busiest resource.

        Raises:
            ParameterError: the combination was refused.
        """
        return self._modelled["bound"]["resource"]

    @property
    def _modelled(self) -> dict[str, Any]:
        if self.figures is None:
            assert self.refused is not None
            raise ParameterError(
                f"{self} was refused: {_first_line(self.refused['message'])}",
                rule="a combination that a check refuses has no modelled time",
                fix="look at its attribute refused",
            )
        return self.figures

    def __str__(self) -> str:
        return ", ".join(f"{name}={_short(value)}" for name, value in self.parameters.items())


class Tuning:
    """The result of `nkisim.tune`. All times are modelled.

    Attributes:
        trials: every combination, in the order in which they were given.
        names: of the parameters.
    """

    kind = MODELLED

    def __init__(self, trials: Sequence[Trial], names: Sequence[str]) -> None:
        self.trials = list(trials)
        self.names = list(names)

    @property
    def ranked(self) -> list[Trial]:
        """The combinations that fit, the fastest first."""
        return sorted((t for t in self.trials if not t.refused), key=lambda t: t.latency_us)

    @property
    def refused(self) -> list[Trial]:
        """The combinations that a check or an assertion refused."""
        return [t for t in self.trials if t.refused]

    @property
    def best(self) -> Trial:
        """The fastest combination."""
        return self.ranked[0]

    @property
    def resolution(self) -> float:
        """Times closer than this, as a share of the shorter one, are not told apart: the model's
        median error for the chip, `nkisim.machine.Machine.error`."""
        name = self.best._modelled["machine"]
        return next(m.error for m in GENERATIONS if m.name == name)

    @property
    def close(self) -> list[Trial]:
        """The others that the model cannot tell from the best: within `resolution` of its time."""
        best, *others = self.ranked
        return [t for t in others if t.latency_us <= best.latency_us * (1 + self.resolution)]

    def why(self) -> str:
        """Why the best combination wins: what bounds it, against what bounds the next one that the
        model tells apart from it, and the slowest."""
        ranked = self.ranked
        best, near = ranked[0], self.close
        out = [f"best: {best}, {_time(best)}; {_bound(best)}"]
        if near:
            out.append(
                f"{counted(len(near), 'more combination')} within "
                f"{_share(self.resolution)} of the best, too close for the model to distinguish: "
                + "; ".join(map(str, near[:3]))
                + ("; ..." if len(near) > 3 else "")
            )
        others = ranked[1 + len(near) :]
        for name, trial in (("next", others[:1]), ("slowest", others[1:][-1:])):
            out += [
                line
                for t in trial
                for line in (
                    f"{name}: {t}, {t.latency_us / best.latency_us:.2f} times as long; {_bound(t)}",
                    *_finding(t),
                )
            ]
        if not others:
            out.append("no combination is slower by more than that")
        return "\n".join(map(_wrapped, out))

    def table(self, rows: int | None = None) -> str:
        """The combinations as text, the fastest first, then those that were refused, with why.

        Args:
            rows: how many to show; None for all.

        Raises:
            ParameterError: rows is negative, or no int.
        """
        if rows is not None and (not isinstance(rows, int) or rows < 0):
            raise ParameterError(
                f"table(rows={rows!r})",
                rule="rows is how many combinations to show, 0 or more",
                fix="leave it out to see all",
            )
        heads, body = self._rows()
        shown = body[:rows]
        widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
        left = len(self.names)
        lines = [
            "  ".join(
                cell.ljust(width) if at < left or at >= left + 2 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (heads, *shown)
        ]
        return "\n".join([f"{self._title()}, {self.kind}", *lines, *map(_wrapped, self._reasons())])

    def plot(self, rows: int = 20) -> Figure:
        """Bars: the modelled latency of each combination that fits, the fastest at the top, in the
        colour of what bounds it. The model does not tell the best from those that end left of the
        dashed line.

        Args:
            rows: how many to show at most.
        """
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        shown = self.ranked[:rows]
        figure = figure_class()(
            figsize=(4.9, 1.8 + 0.26 * len(shown)), layout="constrained", facecolor="none"
        )
        axes = figure.subplots()
        axes.set_facecolor("none")
        colors = [_color(t.bound) for t in shown]
        axes.barh(range(len(shown)), [t.latency_us for t in shown], color=colors, height=0.7)
        axes.axvline(
            self.best.latency_us * (1 + self.resolution), linestyle="--", color="black", lw=1
        )
        axes.set_yticks(range(len(shown)), [str(t) for t in shown])
        axes.invert_yaxis()
        axes.set_xlabel("latency (µs)")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        title = f"{self._title()}\n{self.kind}".replace(": ", "\n", 1)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
        bounds = dict.fromkeys(t.bound for t in shown)
        handles: list[Any] = [Patch(color=_color(n), label=f"bound by {n}") for n in bounds]
        handles.append(
            Line2D([], [], color="black", ls="--", lw=1, label=f"best + {_share(self.resolution)}")
        )
        below: dict[str, Any] = {"loc": "outside lower left", "ncols": 2}  # not on a bar
        figure.legend(handles=handles, frameon=False, fontsize=10, **below)
        return figure

    def as_data(self) -> dict[str, Any]:
        """All trials as plain data, which json.dump takes: {form, kind, best, trials}, where a
        trial is {parameters, figures, refused, warnings}, as in Trial. Parameters that JSON does
        not have are written as text."""
        trials = [
            {
                "parameters": {k: _plain(v) for k, v in t.parameters.items()},
                "figures": t.figures,
                "refused": t.refused,
                "warnings": list(t.warnings),
            }
            for t in self.trials
        ]
        best = self.trials.index(self.best)
        return {"form": FORM, "kind": self.kind, "best": best, "trials": trials}

    def alt_text(self) -> str:
        """A description of the picture, for readers who cannot see it."""
        ranked = self.ranked
        return (
            f"Bars of the modelled latency of {len(ranked)} combinations of "
            f"{', '.join(self.names)}: {ranked[0]} is the fastest with {_time(ranked[0])}, "
            f"{ranked[-1]} the slowest with {_time(ranked[-1])}."
        )

    def _title(self) -> str:
        fits, refused = len(self.ranked), len(self.refused)
        machine = self.best.figures and self.best.figures["machine"]
        return f"{self._kernel()} on {machine}: {fits} combinations" + (
            f", {refused} more refused" if refused else ""
        )

    def _kernel(self) -> str:
        names = dict.fromkeys(t._modelled["kernel"] for t in self.ranked)
        return " and ".join(names) if len(names) < 3 else f"{len(names)} kernels"

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells of the table."""
        heads = [*self.names, "latency", "to best", "bound", "notes"]
        body, best = [], self.best.latency_us
        for t in self.ranked:
            spilled = t._modelled["spilled_bytes"]
            bound = f"{t.bound} {t._modelled['bound']['of_latency']:.0%}"
            notes = ["best"] if t is self.best else []
            notes += [f"spills {spilled / 1e6:.1f} MB"] if spilled else []
            notes += [f"{len(t.warnings)} warning{'s' * (len(t.warnings) > 1)}"] * bool(t.warnings)
            row = [f"{t.latency_us:.1f} µs", f"{t.latency_us / best:.2f}", bound, ", ".join(notes)]
            body.append([*map(_short, t.parameters.values()), *row])
        return heads, body

    def _reasons(self) -> list[str]:
        """The reason of each combination that was refused."""
        return [
            f"refused: {t}: {t.refused['type']}: {_first_line(t.refused['message'])}"
            for t in self.refused
            if t.refused
        ]

    def __str__(self) -> str:
        return f"{self.table()}\n{self.why()}"

    def __repr__(self) -> str:
        return f"<Tuning: {len(self.trials)} trials, best {self.best}, {_time(self.best)}>"

    def _repr_html_(self) -> str:
        heads, body = self._rows()
        rows = [
            "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in [("th", heads), *(("td", row) for row in body)]
        ]
        why = "<br>".join(map(html.escape, [*self._reasons(), *self.why().splitlines()]))
        title = html.escape(f"{self._title()}, {self.kind}")
        return f"<table><caption>{title}</caption>{''.join(rows)}</table><p>{why}</p>"


def _share(part: float) -> str:
    return f"{100 * part:.2g}%"


def _time(trial: Trial) -> str:
    return f"{trial.latency_us:.1f} µs"


def _bound(trial: Trial) -> str:
    figures = trial._modelled
    bound = figures["bound"]
    return (
        f"{bound['resource']} busy {bound['of_latency']:.0%} of the time, "
        f"HBM {figures['hbm_bytes'] / 1e6:.1f} MB"
    )


def _finding(trial: Trial) -> list[str]:
    """The finding with the largest gain, if there is one."""
    for f in trial._modelled["findings"]:
        if f["gain_us"]:
            at = f" [{f['line']['short']}]" if f["line"] else ""
            return [f"  {f['text']}{at} (would gain {f['gain_us']:.1f} µs)"]
    return []


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    together = re.sub(r"(\d) (?=[a-zA-Z%]+\b)", "\\1\u00a0", line)  # a number and its unit
    wrapped = fill(together, _WIDE, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped.replace("\u00a0", " ")


def _color(resource: str) -> str:
    return COLORS["load"] if resource == _DMA else COLORS.get(resource, COLORS["Sync"])


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else _short(value)


def _short(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)

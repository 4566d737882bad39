"""`python -m validation [NAME ...]`: modelled against published, for every point."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from nkibook.options import output_file
from nkisim.report.files import write_whole
from validation.point import Point
from validation.points import POINTS
from validation.points_held_out import HELD_OUT
from validation.points_trn2 import POINTS as POINTS_TRN2

Row = tuple[Point, float]

# (what they are of, what the points are called, the points)
_LISTS = [
    ("NeuronCore-v2", "points", POINTS),
    ("NeuronCore-v3", "points", POINTS_TRN2),
    ("NeuronCore-v2, held out", "held-out points", HELD_OUT),
]


def evaluate(points: Iterable[Point], *, progress: bool = False) -> list[Row]:
    """(point, modelled microseconds) for each point; kernels that occur twice are traced once.

    Args:
        points: which.
        progress: name each point on standard error.
    """
    known: dict[tuple, float] = {}
    rows = []
    for p in points:
        key = (p.kernel, p.how, p.core, repr(p.args))
        if key not in known:
            if progress:
                print(p.name, file=sys.stderr, flush=True)
            known[key] = p.modelled_us()
        rows.append((p, known[key]))
    return rows


def errors(rows: Iterable[Row]) -> np.ndarray:
    """Relative errors, (modelled - published) / published."""
    return np.array([m / p.published_us - 1 for p, m in rows])


def table(rows: list[Row], what: str = "points") -> str:
    """The rows and their statistics as text, with a name for the points."""
    wide = max(len(p.name) for p, _ in rows)
    out = [f"{'point':{wide}} {'trust':7} {'published us':>13} {'modelled us':>13} {'error':>8}"]
    for (p, m), e in zip(rows, errors(rows), strict=True):
        out.append(f"{p.name:{wide}} {p.trust:7} {p.published_us:13.2f} {m:13.2f} {e:8.1%}")
    size = np.abs(errors(rows))
    out.append(
        f"{len(rows)} {what}: median absolute error {np.median(size):.1%}, "
        f"{np.mean(size <= 0.35):.0%} within 35 %, largest {size.max():.0%}"
    )
    return "\n".join(out)


def slower(names: Iterable[str], modelled: dict[str, float]) -> list[str]:
    """The names of points that are modelled as slower than the name before, by more than 0.1 %."""
    names = list(names)
    return [b for a, b in pairwise(names) if modelled[b] > 1.001 * modelled[a]]


def main(argv: Sequence[str] | None = None) -> None:
    """Print, and write if asked, what is modelled and what is published."""
    parser = argparse.ArgumentParser(
        prog="python -m validation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", help="parts of names of points; all when none")
    parser.add_argument("--json", type=output_file, help="also write the rows to this file")
    options = parser.parse_args(argv)
    names = options.names
    known = [p.name for _, _, every in _LISTS for p in every]
    for name in names:
        if not any(name in k for k in known):
            parser.error(f"no point is named like {name!r}; there are {', '.join(sorted(known))}")
    written = []
    for title, what, every in _LISTS:
        chosen = [p for p in every if not names or any(n in p.name for n in names)]
        if not chosen:
            continue
        rows = evaluate(chosen, progress=True)
        print(f"{title}\n{table(rows, what)}\n")
        written += [{"core": p.core, "name": p.name, "modelled_us": m} for p, m in rows]
    if options.json:
        write_whole(options.json, json.dumps(written, indent=1))


if __name__ == "__main__":
    main()

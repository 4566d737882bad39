"""`python -m nkibook.validation [NAME ...]`: modelled against published, for every point.

Two minutes of a processor go into all points, so what they gave is kept in `modelled.json`, which
`python -m nkibook.validation --record` writes. The pages of the book read it. Tests model those of
few instructions anew, and once a week all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from nkibook.options import output_file
from nkibook.validation import pairs, points_book
from nkibook.validation.point import Modelled, Point
from nkibook.validation.points import POINTS
from nkibook.validation.points_held_out import HELD_OUT
from nkibook.validation.points_trn2 import POINTS as POINTS_TRN2
from nkisim.report.files import write_whole

Row = tuple[Point, float]

RECORD = Path(__file__).with_name("modelled.json")

# (what they are of, what the points are called, the points)
_LISTS: list[tuple[str, str, Sequence[Point]]] = [
    ("NeuronCore-v2", "points", POINTS),
    ("NeuronCore-v3", "points", POINTS_TRN2),
    ("NeuronCore-v2, held out", "held-out points", HELD_OUT),
]


def every_point() -> list[Point]:
    """The points of all lists and pairs, each once."""
    lists = (*(points for _, _, points in _LISTS), pairs.points_of(pairs.PAIRS), points_book.BOOK)
    return list({_key(p): p for points in lists for p in points}.values())


def _key(point: Point) -> str:
    return f"{point.core}: {point.name}"


def evaluate(points: Iterable[Point], *, progress: bool = False) -> list[Row]:
    """(point, modelled microseconds) for each point; kernels that occur twice are traced once.

    Args:
        points: which.
        progress: name each point on standard error.
    """
    return [(p, found.us) for p, found in _model(points, progress)]


def _model(points: Iterable[Point], progress: bool) -> list[tuple[Point, Modelled]]:
    known: dict[tuple, Modelled] = {}
    rows = []
    for p in points:
        key = (p.kernel, p.how, p.core, repr(p.args))
        if key not in known:
            if progress:
                print(p.name, file=sys.stderr, flush=True)
            known[key] = p.modelled()
        rows.append((p, known[key]))
    return rows


def record() -> dict[str, Modelled]:
    """What the record has for each point, by `core: name`."""
    return {key: Modelled(*found) for key, found in json.loads(RECORD.read_text()).items()}


def recorded(points: Iterable[Point]) -> list[Row]:
    """(point, microseconds that were modelled for it) for each point, from the record.

    Raises:
        KeyError: a point is new; `python -m nkibook.validation --record` models it.
    """
    known = record()
    return [(p, known[_key(p)].us) for p in points]


def errors(rows: Iterable[Row]) -> np.ndarray:
    """Relative errors, (modelled - published) / published."""
    return np.array([m / p.published_us - 1 for p, m in rows])


def table(rows: list[Row], what: str = "points") -> str:
    """The rows and their statistics as text, with a name for the points."""
    wide = max(len(p.name) for p, _ in rows)
    out = [f"{'point':{wide}} {'trust':7} {'published µs':>13} {'modelled µs':>13} {'error':>8}"]
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
        prog="python -m nkibook.validation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", help="parts of names of points; all when none")
    parser.add_argument("--json", type=output_file, help="also write the rows to this file")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} anew")
    options = parser.parse_args(argv)
    names = options.names
    if options.record:
        found = {_key(p): m for p, m in _model(every_point(), progress=True)}
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found))
        write_whole(RECORD, f"{{\n{lines}\n}}\n")
        return
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

"""Two forms of one kernel, whose latencies are published: what does the second one gain?

A pair names two points. The model was made with some of them in sight; `FOUND` were looked for
later, to hold its gains against, and `FITTED` says which of these changed it since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nkibook.validation.point import Point
from nkibook.validation.points import POINTS
from nkibook.validation.points_held_out import HELD_OUT, LADDERS
from nkibook.validation.points_trn2 import POINTS as POINTS_TRN2


class Pair(NamedTuple):
    """A kernel before and after a change.

    Attributes:
        before, after: points, of one generation.
        kind: "seen" while the model was made, "found" later, or "fitted": found, and used since.
    """

    before: Point
    after: Point
    kind: str


class Pick(NamedTuple):
    """What a search over the published forms of one kernel finds.

    Attributes:
        ladder: the forms, in the order of their source.
        picked: the one that is modelled as the fastest.
        loss: its published latency over that of the form published as the fastest, less 1.
    """

    ladder: tuple[Point, ...]
    picked: Point
    loss: float


class Gain(NamedTuple):
    """What the second form of a pair gains, as a ratio of latencies.

    Attributes:
        pair: which.
        published, modelled: latency before over latency after.
    """

    pair: Pair
    published: float
    modelled: float

    @property
    def error(self) -> float:
        """log(modelled / published): alike for a gain that is too large by a factor, and for one
        that is too small by it."""
        return float(np.log(self.modelled / self.published))

    @property
    def in_order(self) -> bool:
        """Whether the model has the faster form as the faster one. Forms that are published within
        2 % of each other have no order."""
        return abs(np.log(self.published)) < 0.02 or (self.published > 1) == (self.modelled > 1)


_SEEN_V2: list[Sequence[str]] = [
    ("matmul, hoisted", "matmul, blocked", "matmul, full"),
    (
        "matmul, tiled, Autocomp",
        *(
            f"matmul, groups of {g}, Autocomp"
            for g in ("1 x 2", "2 x 2", "4 x 2", "4 x 2, wider loads", "4 x 2, widest loads")
        ),
    ),
    ("mamba v1, 4096 x 512, profile", "mamba v2, 4096 x 512, profile"),
    *((f"mamba v2, 4096 x {n}", f"mamba v3, 4096 x {n}") for n in (1024, 2048, 4096, 8192)),
    ("layernorm v1, 4096 x 8192", "layernorm v2, 4096 x 8192"),
    *(
        [f"add, {tile} tiles{again}" for tile in ("1 x 1", "128 x 1", "128 x 2", "128 x 200")]
        for again in ("", ", again")
    ),
    [
        f"depthwise convolution, {step}, Autocomp"
        for step in (
            "all at once",
            "an image at a time",
            "sums in PSUM",
            "weights in PSUM",
            "blocks of 64",
        )
    ],
    *LADDERS.values(),
]
_SEEN_V3: list[Sequence[str]] = [
    ("matmul fp32, loads in the inner loop", "matmul fp32, loads hoisted"),
    (
        "matmul 2048, loads first",
        "matmul 2048, two stages, one PSUM tile",
        "matmul 2048, two stages of K",
    ),
    *(
        [f"attention, {form}, {dtype}, {rows} x 128" for form in ("three phases", "one pass")]
        for dtype in ("fp32", "bf16")
        for rows in (512, 1024, 2048, 4096)
    ),
]
_FOUND_V2 = [
    ("rotary embedding 128 x 262144, NKIBench", "rotary embedding, tuned, AccelOpt"),
]
_FOUND_V3 = [
    (
        "matmul 2048, loads in the inner loop, nki",
        "matmul 2048, operands resident, nki",
        "matmul 2048, operands resident, two accumulators, nki",
        "matmul 2048, two stages of K",
    ),
]
_FITTED_V2 = [
    (
        "matmul 8192, narrow loads in a loop in order",
        "matmul 8192, wide loads in a loop in order",
    ),
]


def _pairs(ladders: Iterable[Sequence[str]], points: Iterable[Point], kind: str) -> list[Pair]:
    """Neighbours in each ladder."""
    named = {p.name: p for p in points}
    return [Pair(named[a], named[b], kind) for steps in ladders for a, b in pairwise(steps)]


_V2 = POINTS + HELD_OUT
SEEN = _pairs(_SEEN_V2, _V2, "seen") + _pairs(_SEEN_V3, POINTS_TRN2, "seen")
FITTED = _pairs(_FITTED_V2, _V2, "fitted")
FOUND = _pairs(_FOUND_V2, _V2, "found") + _pairs(_FOUND_V3, POINTS_TRN2, "found")
PAIRS = SEEN + FITTED + FOUND


_LADDERS: list[tuple[Iterable[Sequence[str]], Iterable[Point]]] = [
    (_SEEN_V2, _V2),
    (_SEEN_V3, POINTS_TRN2),
    (_FOUND_V2, _V2),
    (_FOUND_V3, POINTS_TRN2),
    (_FITTED_V2, _V2),
]


def picks(rows: Iterable[tuple[Point, float]]) -> list[Pick]:
    """For each ladder, the form that `nkisim.tune` would pick, from the modelled microseconds of
    all points in it."""
    modelled = {(p.core, p.name): us for p, us in rows}
    found = []
    for ladders, points in _LADDERS:
        named = {p.name: p for p in points}
        for steps in ladders:
            forms = tuple(named[name] for name in steps)
            picked = min(forms, key=lambda p: modelled[p.core, p.name])
            best = min(p.published_us for p in forms)
            found.append(Pick(forms, picked, picked.published_us / best - 1))
    return found


def points_of(pairs: Iterable[Pair]) -> list[Point]:
    """The points that pairs name, each once."""
    named = {(p.core, p.name): p for pair in pairs for p in pair[:2]}
    return list(named.values())


def gains(pairs: Iterable[Pair], rows: Iterable[tuple[Point, float]]) -> list[Gain]:
    """The gains of pairs, from the modelled microseconds of their points."""
    modelled = {(p.core, p.name): us for p, us in rows}
    return [
        Gain(
            pair,
            pair.before.published_us / pair.after.published_us,
            modelled[pair.before.core, pair.before.name]
            / modelled[pair.after.core, pair.after.name],
        )
        for pair in pairs
    ]

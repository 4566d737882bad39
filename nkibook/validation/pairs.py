"""Forms of one kernel, whose latencies are published: in which order are they, and what does one
gain over another?

A ladder names the points of one kernel's forms. The model was made with some of them in sight;
those "found" were looked for later, to hold the model against, and one that is "fitted" changed it
since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from nkibook.validation.point import Point
from nkibook.validation.points import POINTS
from nkibook.validation.points_held_out import HELD_OUT, LADDERS
from nkibook.validation.points_trn2 import POINTS as POINTS_TRN2

TIE = 0.03  # published latencies that are closer have no order
_SAME = 0.001  # modelled latencies that are closer are the same
STEPS = (0.05, 0.2, 0.5)  # modelled differences whose worth is told


class Ladder(NamedTuple):
    """Published forms of one kernel, on one generation.

    Attributes:
        differs: what the forms differ in: "loads" (what DMA moves, and when), "tiling" (the size of
            tiles), "fusion" (steps that are one instruction or one pass) or "engine" (where the
            work and the sums are done).
        kind: "seen" while the model was made, "found" later, or "fitted": found, and used since.
        forms: points, in the order of their source.
    """

    differs: str
    kind: str
    forms: tuple[Point, ...]


class Pair(NamedTuple):
    """A kernel before and after a change.

    Attributes:
        before, after: points, of one generation.
        kind: of the ladder that they are in.
    """

    before: Point
    after: Point
    kind: str


class Pick(NamedTuple):
    """What a search over the published forms of one kernel finds.

    Attributes:
        ladder: the forms.
        picked: the one that is modelled as the fastest.
        loss: its published latency over that of the form published as the fastest, less 1.
    """

    ladder: Ladder
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
        3 % of each other have no order."""
        return abs(np.log(self.published)) < TIE or (self.published > 1) == (self.modelled > 1)


class Comparison(NamedTuple):
    """Two forms of one kernel that are published more than 3 % apart, of any two steps of a ladder.

    Attributes:
        ladder: that they are in.
        published: latency of the form that is modelled as the slower one over that of the other.
        modelled: the same of the modelled latencies, at least 1.
    """

    ladder: Ladder
    published: float
    modelled: float

    @property
    def in_order(self) -> bool:
        """Whether the form that is published as the faster one is modelled as the faster one, by
        more than 0.1 %."""
        return self.published > 1 and self.modelled > 1 + _SAME


_V2_LADDERS: list[tuple[str, str, Sequence[str]]] = [
    ("loads", "seen", ("matmul, hoisted", "matmul, blocked", "matmul, full")),
    ("loads", "seen", (
        "matmul, tiled, Autocomp",
        *(
            f"matmul, groups of {g}, Autocomp"
            for g in ("1 x 2", "2 x 2", "4 x 2", "4 x 2, wider loads", "4 x 2, widest loads")
        ),
    )),
    ("loads", "seen", ("mamba v1, 4096 x 512, profile", "mamba v2, 4096 x 512, profile")),
    *(
        ("tiling", "seen", (f"mamba v2, 4096 x {n}", f"mamba v3, 4096 x {n}"))
        for n in (1024, 2048, 4096, 8192)
    ),
    ("fusion", "seen", ("layernorm v1, 4096 x 8192", "layernorm v2, 4096 x 8192")),
    *(
        ("tiling", "seen", [
            f"add, {tile} tiles{again}" for tile in ("1 x 1", "128 x 1", "128 x 2", "128 x 200")
        ])
        for again in ("", ", again")
    ),
    ("engine", "seen", [
        f"depthwise convolution, {step}, Autocomp"
        for step in (
            "all at once",
            "an image at a time",
            "sums in PSUM",
            "weights in PSUM",
            "blocks of 64",
        )
    ]),
    *(
        (differs, "seen", LADDERS[name])
        for name, differs in (
            ("attention", "fusion"), ("Mamba", "loads"), ("attention of small heads", "fusion")
        )
    ),
    ("tiling", "found", (
        "rotary embedding 128 x 262144, NKIBench", "rotary embedding, tuned, AccelOpt"
    )),
    *(
        ("tiling", "found", [f"add, 128 x {n} tiles, {run}" for n in (2000, 1000)])
        for run in ("profile", "profile, again", "trace 1", "trace 2")
    ),
    ("loads", "fitted", [
        f"matmul 8192, {width} loads in a loop in order" for width in ("narrow", "wide")
    ]),
]  # fmt: skip
_V3_LADDERS: list[tuple[str, str, Sequence[str]]] = [
    ("loads", "seen", ("matmul fp32, loads in the inner loop", "matmul fp32, loads hoisted")),
    ("loads", "seen", (
        "matmul 2048, loads first",
        "matmul 2048, two stages, one PSUM tile",
        "matmul 2048, two stages of K",
    )),
    *(
        ("fusion", "seen", [
            f"attention, {form}, {dtype}, {rows} x 128" for form in ("three phases", "one pass")
        ])
        for dtype in ("fp32", "bf16")
        for rows in (512, 1024, 2048, 4096)
    ),
    ("loads", "found", (
        "matmul 2048, loads in the inner loop, nki",
        "matmul 2048, operands resident, nki",
        "matmul 2048, operands resident, two accumulators, nki",
        "matmul 2048, two stages of K",
    )),
    ("tiling", "found", [f"add, {tile} tiles" for tile in (
        "1 x 1", "128 x 1", "128 x 2", "128 x 200"
    )]),
    *(
        ("tiling", "found", [f"add, 128 x {n} tiles, profile {run}" for n in (2000, 1000)])
        for run in (1, 2)
    ),
    *(
        ("tiling", "found", (
            f"convolution {dtype}, pool {pool}",
            f"convolution 224 x 224, strips, {dtype}, pool {pool}",
        ))
        for dtype in ("float16", "float32")
        for pool in (1, 2)
    ),
]  # fmt: skip


def _ladders(
    ladders: Iterable[tuple[str, str, Sequence[str]]], points: Iterable[Point]
) -> list[Ladder]:
    named = {p.name: p for p in points}
    return [
        Ladder(differs, kind, tuple(named[n] for n in names)) for differs, kind, names in ladders
    ]


# Of each generation, its instances and its ladders.
FORMS = {
    "trn1 and inf2": _ladders(_V2_LADDERS, POINTS + HELD_OUT),
    "trn2": _ladders(_V3_LADDERS, POINTS_TRN2),
}
_ALL = [ladder for ladders in FORMS.values() for ladder in ladders]
PAIRS = [
    Pair(before, after, ladder.kind) for ladder in _ALL for before, after in pairwise(ladder.forms)
]  # neighbours in each ladder


def picks(rows: Iterable[tuple[Point, float]], ladders: Iterable[Ladder] = _ALL) -> list[Pick]:
    """For each ladder, the form that `nkisim.tune` would pick, from the modelled microseconds of
    all points in it."""
    modelled = _by_point(rows)
    found = []
    for ladder in ladders:
        picked = min(ladder.forms, key=lambda p: modelled[p.core, p.name])
        best = min(p.published_us for p in ladder.forms)
        found.append(Pick(ladder, picked, picked.published_us / best - 1))
    return found


def comparisons(
    rows: Iterable[tuple[Point, float]], ladders: Iterable[Ladder] = _ALL
) -> list[Comparison]:
    """Any two forms of a ladder that are published more than 3 % apart, from the modelled
    microseconds of all points in it."""
    modelled = _by_point(rows)
    found = []
    for ladder in ladders:
        for a, b in combinations(ladder.forms, 2):
            published = a.published_us / b.published_us
            ratio = modelled[a.core, a.name] / modelled[b.core, b.name]
            if max(published, 1 / published) > 1 + TIE:
                if ratio < 1:
                    published, ratio = 1 / published, 1 / ratio
                found.append(Comparison(ladder, published, ratio))
    return found


def worth(
    found: Iterable[Comparison], steps: Sequence[float] = STEPS
) -> list[tuple[str, int, int, float]]:
    """What a modelled difference is worth.

    Args:
        found: pairs of forms.
        steps: the modelled differences between which pairs are counted together: 0.2 for a form
            that takes 20 % longer.

    Returns:
        For each of these ranges its name, how many pairs are in it, how many of them are in the
        published order, and the median of their published differences: less than 0 where most of
        the forms that are modelled as the slower ones are the faster ones; NaN without a pair.
    """
    found = list(found)
    names = [
        f"under {steps[0]:.0%}",
        *(f"{low:.0%} to {high:.0%}" for low, high in pairwise(steps)),
        f"over {steps[-1]:.0%}",
    ]
    result = []
    for name, (low, high) in zip(names, pairwise([0.0, *steps, np.inf]), strict=True):
        inside = [c for c in found if low <= c.modelled - 1 < high]
        apart = float(np.median([c.published for c in inside])) - 1 if inside else np.nan
        result.append((name, len(inside), sum(c.in_order for c in inside), apart))
    return result


def points_of(pairs: Iterable[Pair]) -> list[Point]:
    """The points that pairs name, each once."""
    named = {(p.core, p.name): p for pair in pairs for p in pair[:2]}
    return list(named.values())


def gains(pairs: Iterable[Pair], rows: Iterable[tuple[Point, float]]) -> list[Gain]:
    """The gains of pairs, from the modelled microseconds of their points."""
    modelled = _by_point(rows)
    return [
        Gain(
            pair,
            pair.before.published_us / pair.after.published_us,
            modelled[pair.before.core, pair.before.name]
            / modelled[pair.after.core, pair.after.name],
        )
        for pair in pairs
    ]


def _by_point(rows: Iterable[tuple[Point, float]]) -> dict[tuple[str, str], float]:
    return {(p.core, p.name): us for p, us in rows}

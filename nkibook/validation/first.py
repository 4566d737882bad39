"""What the model gave for published latencies when they were first compared with it.

A model that has since been changed with such points in sight is closer to them than to a kernel
that it has never seen. So the error to expect of another kernel, `nkisim.machine.Machine.error`,
is the median of these rows. `first.json` keeps them: for NeuronCore-v2 the points of
`points_held_out` with the model of commit c659eeb3, the last before them; for NeuronCore-v3 those
of `nki_library` as their record was first written, in commit b5ed987c.
"""

from __future__ import annotations

import json
from pathlib import Path

from nkibook.validation import nki_library
from nkibook.validation.point import Point
from nkibook.validation.points_held_out import HELD_OUT

RECORD = Path(__file__).with_name("first.json")


def rows(core: str) -> list[tuple[Point, float]]:
    """(point, microseconds that were modelled for it first) of "NeuronCore-v2" or "-v3"."""
    points = {
        "NeuronCore-v2": HELD_OUT,
        "NeuronCore-v3": [point for point, _ in nki_library.rows()],
    }[core]
    modelled = json.loads(RECORD.read_text())[core]
    assert [p.name for p in points] == [name for name, _ in modelled]
    return [(p, us) for p, (_, us) in zip(points, modelled, strict=True)]

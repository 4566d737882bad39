"""`nki.collectives`: data among the ranks of a job, which `nkisim.run_ranks` runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.frontends.nki import arguments, releases
from nkisim.frontends.nki.surface.collectives import even, exchange, permutes, uneven
from nkisim.frontends.nki.surface.names import missing

_PUBLIC = arguments.public("ncc", even, exchange, permutes, uneven)
globals().update(_PUBLIC)

__all__ = [*_PUBLIC]

__getattr__: Callable[[str], Any] = missing("nki.collectives", releases.later(globals(), "ncc"))

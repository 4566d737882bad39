"""`nki.language`: types, memory, tensors, loops and functions on tiles."""

from collections.abc import Callable
from typing import Any

from nkisim.frontends.nki import arguments, grids, loops, releases
from nkisim.frontends.nki.surface import (
    constants,
    control,
    functions,
    memory,
    movement,
    operators,
)
from nkisim.frontends.nki.surface.names import missing
from nkisim.frontends.nki.tensors.tensor import NkiTensor

_PUBLIC = arguments.public(
    "nl", constants, control, functions, grids, loops, memory, movement, operators
)
_PUBLIC["range"] = range  # no page of AWS lists it; its nki-library loops with it
globals().update(_PUBLIC)
arguments.check_methods(NkiTensor)
_TileSize = constants._TileSize  # AWS documents it by this name

__all__ = [*_PUBLIC]

__getattr__: Callable[[str], Any] = missing("nki.language", releases.later(globals(), "nl"))

"""`nki.typing`: annotations of kernel parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.frontends.nki.surface.names import missing


class tensor:
    """`nt.tensor[d0, d1]`: a tensor of that shape, as the annotation of a parameter.

    Attributes:
        shape: the extents.
    """

    def __init__(self, shape: tuple) -> None:
        self.shape = shape

    def __class_getitem__(cls, shape: Any) -> tensor:
        return cls(shape if isinstance(shape, tuple) else (shape,))

    def __or__(self, other: object) -> tensor:
        return self

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"nki.typing.tensor[{', '.join(map(str, self.shape))}]"


__getattr__: Callable[[str], Any] = missing("nki.typing")

"""`nki.compiler`: the configuration of a kernel, which `nki.jit` takes. New in NKI 0.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.frontends.nki import releases
from nkisim.frontends.nki.configuration import AddressRotation, CompileConfig, SpecializationConfig
from nkisim.frontends.nki.surface.names import missing

__all__ = ["AddressRotation", "CompileConfig", "SpecializationConfig"]

__getattr__: Callable[[str], Any] = missing(
    "nki.compiler", releases.later(globals(), "nki.compiler")
)

"""The configuration of a kernel, which `nki.jit` takes: what `nki.compiler` has."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from nkisim.errors import ParameterError, UnsupportedError
from nkisim.frontends.nki import releases


class _Unnamed(type):
    """Of a class whose members no page of AWS names."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full = f"nki.compiler.{cls.__name__}"
        raise UnsupportedError(
            f"{full}.{name}",
            rule=releases.BY_NAME[full].unpublished,
            fix="leave address_rotation out of the CompileConfig; results do not depend on it",
        )


class AddressRotation(metaclass=_Unnamed):
    """Whether the backend may rotate the address of a tensor for a better layout.

    Raises:
        UnsupportedError: for each member: AWS's pages do not name them.
    """


class _Config:
    """Settings of a kernel that are compared by their values."""

    __slots__ = ()

    def _values(self) -> tuple:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._values()))

    def __repr__(self) -> str:
        said = ", ".join(
            f"{n}={v}" for n, v in zip(self.__slots__, self._values(), strict=True) if v is not None
        )
        return f"{type(self).__name__}({said})"


def _booleans(config: str, **settings: Any) -> None:
    for name, value in settings.items():
        if value is not None and not isinstance(value, bool):
            raise ParameterError(
                f"{config}({name}={value!r})",
                rule=f"{name} is True or False",
                fix="pass one of them, or leave it out",
            )


class CompileConfig(_Config):
    """What the compiler does with a kernel: `@nki.jit(compile_config=CompileConfig(...))`.

    Settings that are left out are the compiler's. In the simulator no setting changes a result or a
    modelled time; races between the two cores of a logical core are always looked for.

    Args:
        address_rotation: an AddressRotation. AWS's pages do not name its members.
        non_ssa_legalization: run the pass of that name on the kernel's tensors.
        dead_code_elim: let the backend remove what nothing reads.
        barrier_check: report accesses of two cores to one region that no core barrier orders.
        prefetch_auto: let the compiler choose which loads to start early, into a ring in SBUF. It
            excludes NKI_PREFETCH_RING_SIZE.
        nki_alloc_fallback: on if left out: where NKI's allocation of SBUF and PSUM fails, use that
            of neuronx-cc.

    Raises:
        ParameterError: a setting that is no boolean, or two that exclude each other.
        UnsupportedError: an address_rotation.
    """

    __slots__ = (
        "address_rotation",
        "barrier_check",
        "dead_code_elim",
        "nki_alloc_fallback",
        "non_ssa_legalization",
        "prefetch_auto",
    )

    def __init__(
        self,
        *,
        address_rotation: Any = None,
        non_ssa_legalization: bool | None = None,
        dead_code_elim: bool | None = None,
        barrier_check: bool | None = None,
        prefetch_auto: bool | None = None,
        nki_alloc_fallback: bool | None = None,
    ) -> None:
        if address_rotation is not None:
            raise UnsupportedError(
                f"CompileConfig(address_rotation={address_rotation!r})",
                rule=releases.BY_NAME["nki.compiler.AddressRotation"].unpublished,
                fix="leave it out; results do not depend on it",
            )
        _booleans(
            "CompileConfig",
            non_ssa_legalization=non_ssa_legalization,
            dead_code_elim=dead_code_elim,
            barrier_check=barrier_check,
            prefetch_auto=prefetch_auto,
            nki_alloc_fallback=nki_alloc_fallback,
        )
        if prefetch_auto and os.environ.get("NKI_PREFETCH_RING_SIZE"):
            raise ParameterError(
                "CompileConfig(prefetch_auto=True) with NKI_PREFETCH_RING_SIZE="
                + os.environ["NKI_PREFETCH_RING_SIZE"],
                rule="either the compiler sizes the ring, or the variable does",
                fix="unset NKI_PREFETCH_RING_SIZE",
            )
        self.address_rotation = address_rotation
        self.non_ssa_legalization = non_ssa_legalization
        self.dead_code_elim = dead_code_elim
        self.barrier_check = barrier_check
        self.prefetch_auto = prefetch_auto
        self.nki_alloc_fallback = nki_alloc_fallback


class SpecializationConfig(_Config):
    """What specialising a kernel allows: `@nki.jit(specialization_config=...)`.

    Args:
        allow_nested_config_override: warn, and do not raise, where a kernel that is called in this
            one has another configuration.

    Raises:
        ParameterError: a setting that is no boolean.
    """

    __slots__ = ("allow_nested_config_override",)

    def __init__(self, *, allow_nested_config_override: bool = False) -> None:
        _booleans("SpecializationConfig", allow_nested_config_override=allow_nested_config_override)
        self.allow_nested_config_override = allow_nested_config_override


class Config(NamedTuple):
    """What `nki.jit` was given.

    Attributes:
        compile: for the compiler; None for its own settings.
        specialization: for specialising; None for the defaults.
    """

    compile: CompileConfig | None = None
    specialization: SpecializationConfig | None = None

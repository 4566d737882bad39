"""Settings of instructions: what a kernel's text fixes beside the operands.

Each opcode has a class of settings, a frozen dataclass beside its function, whose fields say which
there are and of what type. Equal settings are one object, so that they are compared by identity.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

import numpy as np

from nkisim.ir.forks import in_child


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of an opcode: the base class, and the settings of an opcode that has none.

    What is asked of instructions whatever their opcode is has its default here:

    Attributes:
        op: the operator or function.
        reduce_op: the operator of a reduction on the side.
        steps: of a chain of operators, (operator, whether its operands are swapped) each.
        accumulate: whether the result is added to, or reduced with, what was there before.
        rows: of a matmul, how many rows of the contraction a partition holds.
        transpose: of a matmul, whether it transposes: the moving tile is the identity.
        negate: of a reduction, whether the result is negated.
        starts: of a matmul that accumulates, whether it is the first one, which overwrites.
        sends: of a transfer to an exchange buffer True, from one False: hardware makes one of the
            two, which is modelled as the receiver's. Else None.
        descriptors: of a transfer, who generates them, as a member of `nisa.dge_mode`: "hwdge",
            "swdge" or "none"; empty for what the compiler chooses.
        started_by: of a transfer, the engine that starts it; None for what the compiler chooses.
        walked: of an instruction whose addresses are in a tile, the view axes that the region has
            before the indexed ones; else None.
        spreads: of a transpose, whether NaN and infinities join the elements of their column.
        through_fp32: of a copy that converts nothing, whether it computes in fp32 all the same.
        assign: whether it is the copy that an assignment leaves behind (nkisim.compiler.folding).
    """

    __slots__ = ("__weakref__",)

    op: ClassVar[str] = ""
    reduce_op: ClassVar[str] = ""
    steps: ClassVar[tuple[tuple[str, bool], ...]] = ()
    accumulate: ClassVar[bool] = False
    rows: ClassVar[int] = 1
    transpose: ClassVar[bool] = False
    negate: ClassVar[bool] = False
    starts: ClassVar[bool] = False
    sends: ClassVar[bool | None] = None
    descriptors: ClassVar[str] = ""
    started_by: ClassVar[Any] = None
    walked: ClassVar[tuple[int, ...] | None] = None
    spreads: ClassVar[bool] = False
    through_fp32: ClassVar[bool] = False
    assign: ClassVar[bool] = False

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """The settings with these values.

        Raises:
            TypeError: one has a name that the opcode does not know, or one is missing.
        """
        key = (cls, *[(name, _key(x)) for name, x in given.items()])
        found = _interned.get(key)
        if found is None:
            found = _interned[key] = cls(**given).shared()
        return found

    def shared(self) -> Self:
        """The one object of equal settings."""
        key = (type(self), *self.key)
        with _lock:  # `setdefault` of this dictionary is not atomic
            return _interned.setdefault(key, self)

    def but(self, **changes: Any) -> Self:
        """These settings with some changed."""
        if all(type(x) is bool for x in changes.values()):
            return _with_flags(self, tuple(changes.items()))
        return self.of(self.given | changes)

    @property
    def given(self) -> dict[str, Any]:
        """The values of the settings, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @property
    def key(self) -> tuple:
        """A hashable key of these settings, the same in every process."""
        return tuple([(name, _key(x)) for name, x in self.given.items()])

    def __reduce__(self) -> tuple:
        return type(self).of, (self.given,)


_interned: WeakValueDictionary[tuple, Any] = WeakValueDictionary()
_lock = threading.Lock()


@functools.lru_cache(maxsize=256)
def _with_flags(settings: Settings, flags: tuple[tuple[str, bool], ...]) -> Settings:
    """`settings.but(**flags)`: of each product and copy of a kernel, the same few."""
    return settings.of(settings.given | dict(flags))


@in_child
def _unlock() -> None:
    global _lock
    _lock = threading.Lock()


def _key(x: object) -> object:
    """A memo key of a value: 0.0 is neither -0.0 nor 0, and NaN is NaN."""
    kind = type(x)
    if kind is str:
        return x
    if isinstance(x, tuple):
        return kind, tuple(map(_key, x))
    if isinstance(x, np.ndarray):
        return x.dtype.str, x.shape, x.tobytes()
    return kind, repr(x) if isinstance(x, float | np.generic) else x


NO_SETTINGS = Settings.of({})

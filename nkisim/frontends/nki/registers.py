"""Registers: numbers that a kernel reads while it runs."""

from __future__ import annotations

from typing import Any

from nkisim.errors import ControlFlowError


class VirtualRegister:
    """A scalar register: a dynamic offset, the bound of a loop, or its condition.

    Args:
        state: the value, where it is known.
        frozen: whether it may not be written: the variable of a loop.

    The simulator knows its value where the kernel is traced on data (see `session`).
    """

    __slots__ = ("frozen", "state")

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        self.state = state
        self.frozen = frozen

    def _refuse(self, what: str) -> ControlFlowError:
        return ControlFlowError(
            f"{what} of a register",
            rule="a register has its value when the kernel runs, not while it is traced",
            fix="loop with nl.fori_loop, nl.while_loop or nl.dynamic_range, move a view with "
            "t.ap(scalar_offset=register), and compute in a (1, 1) tile that nisa.register_load "
            "reads",
        )

    def __bool__(self) -> bool:
        raise self._refuse("the truth value")

    def __int__(self) -> int:
        raise self._refuse("the integer value")

    def __index__(self) -> int:
        raise self._refuse("the integer value")

    def __repr__(self) -> str:
        return "VirtualRegister()"


def _arithmetic(name: str):
    def operate(self: VirtualRegister, *other: object) -> Any:
        raise self._refuse(f"arithmetic ({name})")

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "neg"):
    setattr(VirtualRegister, f"__{_name}__", _arithmetic(_name))

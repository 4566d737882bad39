"""Registers: numbers that a kernel reads while it runs."""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Any

from nkisim.errors import ControlFlowError, IndexingError
from nkisim.trace import sources
from nkisim.trace.tracer import current_if_any


class Assumed(int):
    """A value that is not known, since the kernel is traced without data. It counts as 0, and a
    loop that it bounds has one round."""


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
            fix="loop with `while register:`, nl.fori_loop or nl.dynamic_range, move a view with "
            "t.ap(scalar_offset=register), and compute in a (1, 1) tile that nisa.register_load "
            "reads",
        )

    def number(self) -> int:
        """The value, where the kernel is traced on data.

        Raises:
            IndexingError: nothing has written it.
        """
        if self.state is None:
            raise IndexingError(
                "a register that nothing has written is used",
                rule="a register holds what nisa.register_load, register_move or register_alloc"
                "(x) put into it",
                fix="load it first",
            )
        return self.state if isinstance(self.state, Assumed) else int(self.state)

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        if not _is_loop(frame):
            raise self._refuse("the truth value")
        value = self.number()
        session = current_if_any()
        session.on_loop("while register", value != 0)
        if isinstance(value, Assumed):
            rounds: set = session.rounds
            rounds ^= {(id(frame), frame.f_lineno)}
            return (id(frame), frame.f_lineno) in rounds
        return value != 0

    def __int__(self) -> int:
        raise self._refuse("the integer value")

    def __index__(self) -> int:
        raise self._refuse("the integer value")

    def __repr__(self) -> str:
        return "VirtualRegister()"


def _is_loop(frame: FrameType) -> bool:
    """Whether a frame is at `while register:`, the only statement that reads a register's truth."""
    tree = sources.definition(frame.f_code)
    return tree is not None and any(
        isinstance(node, ast.While)
        and isinstance(node.test, ast.Name)
        and node.test.lineno == frame.f_lineno
        for node in ast.walk(tree)
    )


def _arithmetic(name: str):
    def operate(self: VirtualRegister, *other: object) -> Any:
        raise self._refuse(f"arithmetic ({name})")

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "neg"):
    setattr(VirtualRegister, f"__{_name}__", _arithmetic(_name))

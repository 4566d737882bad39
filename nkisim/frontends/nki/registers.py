"""Integers that a kernel reads while it runs: registers and scalars.

The simulator knows their values where the kernel is traced on data (see `session`).
"""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Any

from nkisim.errors import ControlFlowError, DTypeError, IndexingError, ParameterError
from nkisim.frontends.nki import releases
from nkisim.trace import sources
from nkisim.trace.tracer import current_if_any

WIDTHS = {"int32": 32, "int64": 64}  # bits of a scalar, by its type
_LOOPS = "loop with nl.fori_loop or nl.while_loop"


class Assumed(int):
    """A value that is not known, since the kernel is traced without data. It counts as 0, or as
    the lower bound of its loop, and a loop that it bounds has one round."""


class RunTimeInteger:
    """An integer of the device: a dynamic offset, the bound of a loop, or its condition.

    Attributes:
        state: the value, where it is known.
    """

    __slots__ = ("state",)

    state: Any

    _what = "a register"
    _source = "nisa.register_load, register_move or register_alloc(x)"

    def number(self) -> int:
        """The value, where the kernel is traced on data.

        Raises:
            IndexingError: nothing has written it.
        """
        if self.state is None:
            raise IndexingError(
                f"{self._what} that nothing has written is used",
                rule=f"it holds what {self._source} put into it",
                fix="load it first",
            )
        return self.state if isinstance(self.state, Assumed) else int(self.state)

    def _refuse(self, what: str, instead: str) -> ControlFlowError:
        return ControlFlowError(
            f"{what} of {self._what}",
            rule=f"{self._what} has its value when the kernel runs, not while it is traced",
            fix=instead,
        )

    def _in_python(self, what: str) -> ControlFlowError:
        return self._refuse(
            what, f"{_LOOPS}, and move a view with t.ap(pattern, scalar_offset=index)"
        )

    def __bool__(self) -> bool:
        raise self._in_python("the truth value")

    def __int__(self) -> int:
        raise self._in_python("the integer value")

    def __index__(self) -> int:
        raise self._in_python("the integer value")


class VirtualRegister(RunTimeInteger):
    """A scalar register: a dynamic offset, the bound of a loop, or its condition.

    Args:
        state: the value, where it is known.
        frozen: whether it may not be written: the variable of a loop.
    """

    __slots__ = ("frozen",)

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        self.state = state
        self.frozen = frozen

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        if not _is_loop(frame):
            raise self._in_python("the truth value")
        if releases.tracing():
            raise ControlFlowError(
                "`while register:`",
                rule="NKI 0.7 runs a kernel as Python, and a register has no value then; the loop "
                "was deprecated in NKI 0.6",
                fix="write nl.while_loop(register, body), where body(register) returns the next "
                f"condition; {releases.VARIABLE}=0.6 runs it as it is",
            )
        value = self.number()
        session = current_if_any()
        session.on_loop("while register", value != 0)
        if isinstance(value, Assumed):
            rounds: set = session.rounds
            rounds ^= {(id(frame), frame.f_lineno)}
            return (id(frame), frame.f_lineno) in rounds
        return value != 0

    def _arithmetic(self, name: str) -> ControlFlowError:
        instead = "compute in a (1, 1) tile that nisa.register_load reads"
        if releases.release() != "0.6":
            instead = (
                "use nisa.scalar_load(tile), which gives a scalar that computes, or " + instead
            )
        return self._refuse(f"arithmetic ({name})", instead)

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


def _refused(name: str):
    def operate(self: VirtualRegister, *other: object) -> Any:
        raise self._arithmetic(name)

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "neg"):
    setattr(VirtualRegister, f"__{_name}__", _refused(_name))


class NkiScalar(RunTimeInteger):
    """An integer that is computed on the device, of int32 or int64: what nisa.scalar_load reads,
    and the variable of nl.fori_loop.

    `+`, `-` and `*` with an integer or a scalar of the same type, and `-scalar` of int32, give
    another scalar. They wrap around, as the device's do: 100000 * 100000 is 1410065408 in int32.
    Comparisons of int32 are recorded, and their result cannot be used; those of int64 do not exist.

    Args:
        state: the value, where it is known.
        dtype: nl.int32 or nl.int64.
        is_comparison: whether it is the result of a comparison.

    Raises:
        DTypeError: another type, or operands of two.
        ParameterError: an operand that is none, an operator that scalars do not have, or the use
            of a comparison.
        ControlFlowError: `if scalar`, `int(scalar)` or `range(scalar)`.
    """

    __slots__ = ("dtype", "is_comparison")

    _what = "a scalar"
    _source = "nisa.scalar_load"

    def __init__(self, state: Any = None, dtype: Any = None, is_comparison: bool = False) -> None:
        dtype = "int32" if dtype is None else dtype
        if dtype not in WIDTHS:
            raise DTypeError(
                f"an NkiScalar of {dtype}",
                rule="a scalar is nl.int32 or nl.int64",
                fix="convert the tensor that it is loaded from, with nisa.tensor_copy",
            )
        self.state = state
        self.dtype = dtype
        self.is_comparison = is_comparison

    def number(self) -> int:
        if self.is_comparison:
            raise ParameterError(
                "the result of a comparison of scalars is used",
                rule="NKI 0.7 records comparisons, and nothing takes their result yet",
                fix="compare tiles: nisa.tensor_scalar(dst, data, nl.less, value), and load dst",
            )
        return super().number()

    def _other(self, sign: str, other: Any) -> int:
        """The value of the other operand."""
        if isinstance(other, NkiScalar):
            if other.dtype != self.dtype:
                raise DTypeError(
                    f"{self.dtype} {sign} {other.dtype} of two scalars",
                    rule="scalars are never converted: both operands have one type",
                    fix="load both from tensors of one type",
                )
            return other.number()
        if type(other) is int:
            low = -(2 ** (WIDTHS[self.dtype] - 1))
            if not low <= other < -low:
                raise ParameterError(
                    f"a scalar of {self.dtype} {sign} {other}",
                    rule=f"the other operand fits {self.dtype}: {low} to {-low - 1}",
                    fix="use a scalar of nl.int64" if self.dtype == "int32" else "use less",
                )
            return other
        raise ParameterError(
            f"a scalar {sign} {other!r}",
            rule="the other operand is an integer, or a scalar of the same type",
            fix="load a register's tensor with nisa.scalar_load"
            if isinstance(other, VirtualRegister)
            else "pass an int",
        )

    def _new(self, value: int, *known: int) -> NkiScalar:
        """The scalar of a value that wraps around; of none where an operand's is not known."""
        if any(isinstance(n, Assumed) for n in known):
            return NkiScalar(Assumed(), self.dtype)
        half = 2 ** (WIDTHS[self.dtype] - 1)
        return NkiScalar((value + half) % (2 * half) - half, self.dtype)

    def __add__(self, other: Any) -> NkiScalar:
        a, b = self.number(), self._other("+", other)
        return self._new(a + b, a, b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> NkiScalar:
        a, b = self.number(), self._other("-", other)
        return self._new(a - b, a, b)

    def __rsub__(self, other: Any) -> NkiScalar:
        a, b = self.number(), self._other("-", other)
        return self._new(b - a, a, b)

    def __mul__(self, other: Any) -> NkiScalar:
        a, b = self.number(), self._other("*", other)
        return self._new(a * b, a, b)

    __rmul__ = __mul__

    def __neg__(self) -> NkiScalar:
        if self.dtype != "int32":
            raise self._no_operator("-scalar", "0 - scalar")
        a = self.number()
        return self._new(-a, a)

    def _compared(self, sign: str, other: Any) -> NkiScalar:
        if self.dtype != "int32":
            raise self._no_operator(sign, "a comparison of tiles, nisa.tensor_scalar")
        self._other(sign, other)
        return NkiScalar(None, self.dtype, is_comparison=True)

    def __lt__(self, other: Any) -> NkiScalar:
        return self._compared("<", other)

    def __le__(self, other: Any) -> NkiScalar:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> NkiScalar:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> NkiScalar:
        return self._compared(">=", other)

    def __eq__(self, other: Any) -> Any:
        return self._compared("==", other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return self._compared("!=", other) if _is_operand(other) else NotImplemented

    __hash__ = object.__hash__

    def _no_operator(self, sign: str, instead: str) -> ParameterError:
        return ParameterError(
            f"{sign} of a scalar of {self.dtype}",
            rule="scalars of int32 have +, -, *, -scalar and comparisons, those of int64 +, - and "
            "*; AWS's pages show no others",
            fix=f"use {instead}",
        )

    def __repr__(self) -> str:
        return f"NkiScalar(dtype={self.dtype})"


def _is_operand(x: object) -> bool:
    return isinstance(x, RunTimeInteger | int)


def _missing(sign: str):
    def operate(self: NkiScalar, *other: object) -> Any:
        raise self._no_operator(
            sign, "nisa.tensor_scalar on the (1, 1) tile, before nisa.scalar_load reads it"
        )

    return operate


for _name, _sign in (
    *(("floordiv", "//"), ("truediv", "/"), ("mod", "%"), ("pow", "**"), ("lshift", "<<")),
    *(("rshift", ">>"), ("and", "&"), ("or", "|"), ("xor", "^")),
):
    setattr(NkiScalar, f"__{_name}__", _missing(_sign))
    setattr(NkiScalar, f"__r{_name}__", _missing(_sign))
for _name, _sign in (("invert", "~"), ("abs", "abs()")):
    setattr(NkiScalar, f"__{_name}__", _missing(_sign))

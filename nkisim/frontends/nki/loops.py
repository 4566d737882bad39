"""Loops whose bounds or condition are data.

Where the kernel is traced on data, they run as many times as the data says, and come out unrolled;
the trace then holds for these values only. Without data they run once (`Session.assume`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from nkisim.errors import ControlFlowError, DTypeError, ParameterError
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.registers import Assumed, NkiScalar, RunTimeInteger, VirtualRegister
from nkisim.frontends.nki.session import current

__all__ = ["dynamic_range", "fori_loop", "while_loop"]


def _bound(call: str, x: Any) -> int:
    if isinstance(x, NkiScalar) and x.dtype != "int32":
        raise DTypeError(
            f"{call} up to a scalar of {x.dtype}",
            rule="the loop compares and branches on 32 bits",
            fix="load the bound from an nl.int32 tensor; an offset in the body may be nl.int64",
        )
    if isinstance(x, RunTimeInteger):
        return current().number_of(x)
    return operator.index(x)


def _rounds(
    call: str, lower: Any, upper: Any, step: int, variable: Callable[[int], RunTimeInteger]
) -> Iterator[RunTimeInteger]:
    """The loop variable in each round."""
    first, end = _bound(call, lower), _bound(call, upper)
    current().on_loop(call, len(range(first, end, step)))
    if isinstance(first, Assumed) or isinstance(end, Assumed):
        yield variable(Assumed(first))
        return
    for i in range(first, end, step):
        yield variable(i)


def _frozen(i: int) -> VirtualRegister:
    return VirtualRegister(i, frozen=True)


def _step(call: str, step: Any) -> int:
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise ParameterError(
            f"{call}: step {step!r}",
            rule="the step is a positive integer known while tracing",
            fix="pass 1, and multiply the loop variable in a (1, 1) tile",
        )
    return step


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """A loop of the device, from 0 or `start` up to a bound that a register may hold. NKI 0.7 does
    not have it: use nl.fori_loop.

    Yields:
        The loop variable, a register that cannot be written.

    Raises:
        ControlFlowError: in NKI 0.7.
        ParameterError: a step that is not a positive integer.
    """
    if releases.tracing():
        raise ControlFlowError(
            "nl.dynamic_range",
            rule="NKI 0.7 runs a kernel as Python, whose `for` is unrolled while the kernel is "
            "specialised; the loop was deprecated in NKI 0.6",
            fix="write the body as a function, and nl.fori_loop(lower, upper, body); "
            f"{releases.VARIABLE}=0.6 runs it as it is",
        )
    step = _step("nl.dynamic_range", step)
    low, high = (0, start) if stop is None else (start, stop)
    return _rounds("nl.dynamic_range", low, high, step, _frozen)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], None], step: int = 1) -> None:
    """A loop of the device: body_fun(i) for i from `lower` below `upper`.

    Args:
        lower, upper: integers, NkiScalars of int32, or registers.
        body_fun: receives the loop variable: a register where a bound is one, and in NKI 0.6, else
            an NkiScalar. It returns nothing: values for the next iteration are stored in SBUF or
            HBM.
        step: a positive integer.

    Raises:
        ParameterError: another step, a body that returns a value, or a loop in no_reorder.
        DTypeError: a bound of int64.
        ScopeError: a tensor that the body declares is used outside of its round.
        ControlFlowError: the cores of a logical core have different numbers of rounds.
    """
    call = "nl.fori_loop"
    step = _step(call, step)
    registers = releases.release() == "0.6" or isinstance(lower, VirtualRegister)
    registers = registers or isinstance(upper, VirtualRegister)
    for i in _rounds(call, lower, upper, step, _frozen if registers else NkiScalar):
        with current().one_round():
            result = body_fun(i)
        if result is not None:
            raise ParameterError(
                "the body of nl.fori_loop returns a value",
                rule="it returns nothing; what it carries over lives in SBUF or HBM",
                fix="write results into a tensor made before the loop",
            )


def while_loop(init: VirtualRegister, body_fun: Callable[[Any], VirtualRegister]) -> None:
    """A loop of the device: r = body_fun(r) while r is not 0.

    Args:
        init: the first condition, a register.
        body_fun: gets the condition, and returns the next one, a register.

    Raises:
        ParameterError: a body that returns another kind of value, or a loop in no_reorder.
        ScopeError: a tensor that the body declares is used outside of its round.
        ControlFlowError: the cores of a logical core have different numbers of rounds.
    """
    call = "nl.while_loop"
    if isinstance(init, NkiScalar):
        releases.tell_unpublished(call)
    condition: Any = init
    assumed = isinstance(_bound(call, init), Assumed)  # then there is one round
    while _goes_on(call, condition):
        with current().one_round():
            condition = body_fun(condition)
        if type(condition) is not type(init):
            scalar = isinstance(init, NkiScalar)
            raise ParameterError(
                f"the body of nl.while_loop returns {condition!r}",
                rule="it returns the next condition, " + ("a scalar" if scalar else "a register"),
                fix="return nisa.scalar_load(tile)"
                if scalar
                else "load it with nisa.register_load, and return the register",
            )
        if assumed:
            return


def _goes_on(call: str, condition: RunTimeInteger) -> bool:
    value = _bound(call, condition)
    current().on_loop(call, bool(value))
    return isinstance(value, Assumed) or value != 0

"""Loops whose bounds or condition are data.

Where the kernel is traced on data, they run as many times as the data says, and come out unrolled;
the trace then holds for these values only. Without data they run once (`Session.assume`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.nki.registers import Assumed, VirtualRegister
from nkisim.frontends.nki.session import current


def _bound(x: Any) -> int:
    if isinstance(x, VirtualRegister):
        return current().number_of(x)
    return operator.index(x)


def _rounds(call: str, lower: Any, upper: Any, step: int) -> Iterator[VirtualRegister]:
    """The loop variable in each round, a register that cannot be written."""
    first, end = _bound(lower), _bound(upper)
    current().on_loop(call, len(range(first, end, step)))
    if isinstance(first, Assumed) or isinstance(end, Assumed):
        yield VirtualRegister(Assumed(first), frozen=True)
        return
    for i in range(first, end, step):
        yield VirtualRegister(i, frozen=True)


def _step(call: str, step: Any) -> int:
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise ParameterError(
            f"{call}: step {step!r}",
            rule="the step is a positive integer known while tracing",
            fix="pass 1, and multiply the loop variable in a (1, 1) tile",
        )
    return step


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """A loop of the device, from 0 or `start` up to a bound that a register may hold.

    Yields:
        The loop variable, a register that cannot be written.
    """
    step = _step("nl.dynamic_range", step)
    low, high = (0, start) if stop is None else (start, stop)
    yield from _rounds("nl.dynamic_range", low, high, step)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], None], step: int = 1) -> None:
    """A loop of the device: body_fun(i) for i from `lower` below `upper`.

    Args:
        lower, upper: integers, or registers.
        body_fun: receives the loop variable, a register that cannot be written. It returns nothing:
            values for the next iteration are stored in SBUF or HBM.
        step: a positive integer.
    """
    step = _step("nl.fori_loop", step)
    for i in _rounds("nl.fori_loop", lower, upper, step):
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
    """
    condition = init
    assumed = isinstance(_bound(init), Assumed)  # then there is one round
    while _goes_on(condition):
        with current().one_round():
            condition = body_fun(condition)
        if not isinstance(condition, VirtualRegister):
            raise ParameterError(
                f"the body of nl.while_loop returns {condition!r}",
                rule="it returns the next condition, a register",
                fix="load it with nisa.register_load, and return the register",
            )
        if assumed:
            return


def _goes_on(condition: VirtualRegister) -> bool:
    value = _bound(condition)
    current().on_loop("nl.while_loop", bool(value))
    return isinstance(value, Assumed) or value != 0

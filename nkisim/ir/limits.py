"""Limits of a launch: how many instructions its trace has, and how often its run-time loops run.

A loop whose condition is data may never end, and each of its iterations is written down. A limit
turns that into an error at the kernel's line; a launch that needs more says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from nkisim.errors import LimitError

LIMITS = {
    "instructions": 10_000_000,
    "iterations": 100_000,
}
"""By name, the limit where nothing says another: of the instructions of a trace, which take about
0.8 KB each; and of the iterations of the run-time loops of a launch, all together."""

ENVIRONMENT = "NKISIM_LIMITS"


def _validated(settings: dict[str, int]) -> dict[str, int]:
    for name, most in settings.items():
        if name not in LIMITS or type(most) is not int or most < 1:
            raise ValueError(
                f"unknown limit {name}={most!r}: limits are {', '.join(LIMITS)}, "
                "and each is a whole number from 1 on"
            )
    return settings


def parsed(text: str) -> dict[str, int]:
    """The limits that a text such as "instructions=1000000,iterations=5000" names.

    Raises:
        ValueError: there is no such limit, or it is no whole number.
    """
    parts = (part.partition("=") for part in text.split(",") if part.strip())
    found = {name.strip(): most.strip().replace("_", "") for name, _, most in parts}
    return _validated({n: int(most) if most.isdecimal() else most for n, most in found.items()})  # type: ignore[misc]


_settings = LIMITS | parsed(os.environ.get(ENVIRONMENT, ""))


@contextlib.contextmanager
def limits(**most: int) -> Iterator[None]:
    """Other limits inside a `with` block.

    Args:
        **most: "instructions" of a trace, or "iterations" of its run-time loops, to the number that
            is allowed.

    Raises:
        ValueError: no such limit, or not a whole number from 1 on.
    """
    before = dict(_settings)
    set_limits(**most)
    try:
        yield
    finally:
        _settings.update(before)


def set_limits(**most: int) -> None:
    """Other limits from here on. Arguments and errors as for `limits`."""
    _settings.update(_validated(most))


def limit(name: str) -> int:
    """The limit of that name, now."""
    return _settings[name]


def too_many_iterations(count: int, where: str) -> LimitError:
    """The error for run-time loops whose bodies run too often.

    Args:
        count: how often, together.
        where: the loop at which that was found, after "with this".
    """
    return exceeded(
        "iterations",
        f"the run-time loops of this launch come to {count:,} iterations with this {where}",
        rule=f"they run at most {limit('iterations'):,} times together; a while loop ends when its "
        "register is zero after an iteration",
    )


def exceeded(name: str, problem: str, rule: str) -> LimitError:
    """The error for a limit that is reached.

    Args:
        name: of the limit.
        problem, rule: as for KernelError.
    """
    return LimitError(
        problem,
        rule=rule,
        fix=f"if as many are meant, raise the limit: {ENVIRONMENT}={name}=N in the environment, "
        f"or with nkisim.limits({name}=N)",
    )
